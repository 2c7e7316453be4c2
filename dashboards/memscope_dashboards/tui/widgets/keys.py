"""The bottom line: keys."""

from __future__ import annotations

from typing import ClassVar

from memscope.text import clean
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.line import Line, spread
from memscope_dashboards.tui.widgets.lines import LinesWidget

Labels = tuple[tuple[str, str], ...]


class Keys(LinesWidget):
    """Keys at the left, the path at the right."""

    labels: ClassVar[Labels] = (
        ("q", "quit"),
        ("p", "pause"),
        ("m", "memory"),
        ("v", "all metrics"),
        ("?", "help"),
    )

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Line]:
        """See the class."""
        left: list[tuple[str, str]] = []
        for key, word in self.labels:
            left += [(key, "key"), (f" {word}   ", "dim")]
        runs = (
            f"recording {snapshot.attachments} of this path  " if snapshot.attachments > 1 else ""
        )
        keys_width = sum(len(text) for text, _ in left)
        path = clean(str(snapshot.path), 400)
        room = max(width - keys_width - len(runs) - 1, 0)
        tail = path if len(path) <= room else "…" + path[len(path) - room + 1 :] if room > 8 else ""
        return [spread(tuple(left), ((runs, "warn"), (tail, "dim")), width)]


class BackKeys(Keys):
    """Those of a screen that lies over the live view."""

    labels = (("Esc", "back"), ("↑ ↓", "scroll"), ("p", "pause"), ("q", "quit"))
