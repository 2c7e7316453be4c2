"""The footer: keys and the path of the recording."""

from __future__ import annotations

from typing import ClassVar

from memscope.text import clean
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.key_table import BACK_FOOTER, FOOTER
from memscope_dashboards.tui.palette import Role
from memscope_dashboards.tui.styled_line import Span, StyledLine, spread
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget

Labels = tuple[tuple[str, str], ...]


class Keys(LinesWidget):
    """Keys at the left, the path at the right."""

    labels: ClassVar[Labels] = FOOTER

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[StyledLine]:
        """See the class."""
        left: list[Span] = []
        for key, word in self.labels:
            left += [(key, Role.KEY), (f" {word}   ", Role.DIM)]
        runs = (
            f"recording {snapshot.attachments} of this path  " if snapshot.attachments > 1 else ""
        )
        keys_width = sum(len(text) for text, _ in left)
        path = clean(str(snapshot.path), 400)
        room = max(width - keys_width - len(runs) - 1, 0)
        tail = path if len(path) <= room else "…" + path[len(path) - room + 1 :] if room > 8 else ""
        return [spread(tuple(left), ((runs, Role.WARN), (tail, Role.DIM)), width)]


class BackKeys(Keys):
    """The footer of a screen that covers the live view."""

    labels = BACK_FOOTER
