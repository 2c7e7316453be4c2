"""Shown while there is no recording yet."""

from __future__ import annotations

from memscope.text import clean
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.palette import Role
from memscope_dashboards.tui.styled_line import StyledLine, paragraph
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget


class Waiting(LinesWidget):
    """Says what is missing and how to record it."""

    DEFAULT_CSS = "Waiting { padding: 2 4; }"

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[StyledLine]:
        """See the class."""
        if snapshot.summary is not None:
            return []
        problem = clean(snapshot.problem or "Nothing has been read yet.", 400)
        hint = "The view starts by itself when a program records to this path, for example:"
        command = f"memscope run -o {snapshot.path} -- python train.py"
        return [
            *paragraph(problem, Role.STRONG, width),
            (),
            *paragraph(hint, Role.DIM, width),
            *paragraph(clean(command, 400), Role.TEXT, width),
        ]
