"""All figures with their definitions, and all verdicts with their reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.binding import BindingType

from memscope.analysis.metrics.figure import Figure
from memscope.analysis.metrics.figures import find_definition
from memscope.text import clean
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.line import Line, paragraph, rule, spread
from memscope_dashboards.tui.reading import figure_text
from memscope_dashboards.tui.screens.snapshot_screen import ScrollingScreen
from memscope_dashboards.tui.widgets.lines import LinesWidget
from memscope_dashboards.tui.widgets.verdicts import ORDER, Verdicts


class AllFigures(LinesWidget):
    """Name, value and definition of each figure, those with a value first; the others' reason."""

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Line]:
        """See the class."""
        if snapshot.summary is None:
            return []
        lines = [rule("Figures", (), width)]
        found = snapshot.summary.figures.values()
        for figure in sorted(found, key=lambda figure: figure.value is None):
            lines += figure_lines(figure, width)
        return lines


def figure_lines(figure: Figure, width: int) -> list[Line]:
    """One figure."""
    role = "dim" if figure.value is None else "strong"
    name = (clean(figure.name, 120), "text")
    definition = find_definition(figure.name)
    text = definition.definition if definition is not None else ""
    text += f" ({figure.of})" if figure.of else ""
    text += f" ({figure.reason})" if figure.reason else ""
    head = spread((name,), ((figure_text(figure), role),), width)
    return [head, *paragraph(clean(text, 400), "dim", width, indent=2)]


class FiguresScreen(ScrollingScreen):
    """Verdicts first."""

    BINDINGS: ClassVar[list[BindingType]] = [("v", "dismiss", "Back")]

    def compose_parts(self) -> Iterator[LinesWidget]:
        """See the class."""
        verdicts = Verdicts()
        verdicts.with_reasons = ORDER
        yield verdicts
        yield AllFigures()
