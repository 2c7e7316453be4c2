"""All figures with their definitions, and all verdicts with their reasons."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen

from memscope.analysis.figure import Figure
from memscope.analysis.figures import find_definition
from memscope.text import clean
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.line import Line, paragraph, rule, spread
from memscope_dashboards.tui.reading import figure_text
from memscope_dashboards.tui.widgets.lines import LinesWidget
from memscope_dashboards.tui.widgets.masthead import Masthead
from memscope_dashboards.tui.widgets.verdicts import ORDER, Verdicts


class AllFigures(LinesWidget):
    """Name, value and definition of each figure; the reason where it has no value."""

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Line]:
        """See the class."""
        if snapshot.summary is None:
            return []
        lines = [rule("Figures", (), width)]
        for figure in snapshot.summary.figures.values():
            lines += figure_lines(figure, width)
        return lines


def figure_lines(figure: Figure, width: int) -> list[Line]:
    """One figure."""
    role = "dim" if figure.value is None else "strong"
    name = (clean(figure.name, 120), "text")
    definition = find_definition(figure.name)
    text = definition.definition if definition is not None else ""
    text += f" ({figure.reason})" if figure.reason else ""
    head = spread((name,), ((figure_text(figure), role),), width)
    return [head, *paragraph(clean(text, 400), "dim", width, indent=2)]


class FiguresScreen(Screen[None]):
    """Scrolls; kept up to date like the live view."""

    CSS = """
    FiguresScreen { layout: vertical; }
    FiguresScreen VerticalScroll { padding: 0 1; scrollbar-size-vertical: 1; }
    FiguresScreen Masthead { padding: 0 1; }
    FiguresScreen LinesWidget { height: auto; margin: 0 0 1 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("escape,v", "dismiss", "Back")]

    def compose(self) -> ComposeResult:
        """Verdicts first."""
        yield Masthead()
        with VerticalScroll():
            verdicts = Verdicts()
            verdicts.with_reasons = ORDER
            yield verdicts
            yield AllFigures()

    def on_mount(self) -> None:
        """The keys scroll at once."""
        self.query_one(VerticalScroll).focus()

    def show(self, snapshot: Snapshot, *, is_paused: bool) -> None:
        """Draw what changed."""
        for masthead in self.query(Masthead):
            masthead.is_paused = is_paused
        for widget in self.query(LinesWidget):
            widget.show(snapshot)
