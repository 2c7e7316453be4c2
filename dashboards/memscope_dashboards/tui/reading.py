"""Figures of a snapshot as text: formatted in one way wherever they stand."""

from __future__ import annotations

from memscope.analysis.metrics.figure import Figure
from memscope.units import format_value
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.line import Span


def find_figure(snapshot: Snapshot, name: str) -> Figure | None:
    """The figure ``name``; None where no summary has it."""
    return snapshot.summary.figures.get(name) if snapshot.summary is not None else None


def figure_value(snapshot: Snapshot, name: str) -> float | None:
    """Its value; None where it was not measured."""
    figure = find_figure(snapshot, name)
    return figure.value if figure is not None else None


def figure_text(figure: Figure) -> str:
    """Value and unit, or that there is none: never a zero."""
    if figure.value is not None:
        return format_value(figure.value, figure.unit)
    return "not measured" if figure.is_applicable else "not applicable"


def figure_span(snapshot: Snapshot, name: str, role: str = "text") -> Span:
    """``figure_text`` of the figure ``name``, dim where it has no value."""
    figure = find_figure(snapshot, name)
    if figure is None or figure.value is None:
        return (figure_text(figure) if figure is not None else "not measured", "dim")
    return (figure_text(figure), role)


def can_exist(snapshot: Snapshot, name: str) -> bool:
    """Whether the figure ``name`` has a value or could have one.

    Of a window nothing is ruled out before a step has ended.
    """
    figure = find_figure(snapshot, name)
    has_steps = snapshot.steps is not None and len(snapshot.steps) > 0
    is_open = snapshot.program.has_window and not has_steps
    return figure is None or figure.is_applicable or is_open


def has_device(snapshot: Snapshot) -> bool:
    """Whether anything is known of a device so far."""
    return snapshot.summary is not None and bool(snapshot.summary.ledgers)
