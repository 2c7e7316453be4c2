"""The base of every widget: it draws lines of text, and redraws only lines that changed."""

from __future__ import annotations

from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.palette import style_of
from memscope_dashboards.tui.styled_line import StyledLine, pad


class LinesWidget(Widget):
    """Shows the lines that ``compose_lines`` returns for the newest snapshot."""

    DEFAULT_CSS = "LinesWidget { height: auto; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.snapshot: Snapshot | None = None
        self.lines: list[StyledLine] = []

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[StyledLine]:
        """The lines to show in ``width`` cells; ``height``: rows available, 0 if not fixed."""
        raise NotImplementedError

    def show(self, snapshot: Snapshot) -> None:
        """Take a newer snapshot and redraw the lines that changed."""
        self.snapshot = snapshot
        self._update(self.size)

    def on_resize(self, event: events.Resize) -> None:
        """Lines depend on the width."""
        self._update(event.size)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are lines."""
        if self.snapshot is None:
            return 0
        return len(self.compose_lines(self.snapshot, width, 0))

    def render_line(self, y: int) -> Strip:
        """One row of the widget."""
        line = self.lines[y] if y < len(self.lines) else ()
        has_colour = not self.app.no_color
        base = self.rich_style
        segments = [
            Segment(text, base + style_of(role, has_colour=has_colour))
            for text, role in pad(line, self.size.width)
        ]
        return Strip(segments, self.size.width)

    def _update(self, size: Size) -> None:
        if self.snapshot is None or not size.width:
            return
        lines = self.compose_lines(self.snapshot, size.width, size.height)
        before, self.lines = self.lines, lines
        if len(lines) != len(before):
            self.refresh(layout=self.styles.is_auto_height)
        elif changed := [y for y, line in enumerate(lines) if line != before[y]]:
            self.refresh(*(Region(0, y, size.width, 1) for y in changed))
