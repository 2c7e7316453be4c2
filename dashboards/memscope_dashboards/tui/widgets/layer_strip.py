"""Where each layer's weights are: one cell per layer."""

from __future__ import annotations

from collections.abc import Sequence

from memscope.analysis.summary.residency_map import LayerStates
from memscope.units import format_bytes
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.palette import Role
from memscope_dashboards.tui.styled_line import Span, StyledLine, rule
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget

GLYPHS = {
    "resident": ("█", Role.RESIDENT),
    "in flight": ("▒", Role.IN_FLIGHT),
    "evicted": ("·", Role.EVICTED),
    "unused": (" ", Role.EVICTED),
}
CELL_WIDTHS = (4, 3, 2)


class LayerStrip(LinesWidget):
    """Layers in order; a glyph, not a colour, tells resident from in flight from evicted."""

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[StyledLine]:
        """See the class."""
        states = snapshot.layers.states
        if not states:
            nothing = "no layer has run yet"
            return [rule("Layers", (), width), ((nothing, Role.DIM),)]
        lines = [rule(title(snapshot.layers), legend(snapshot.layers), width)]
        cell = next((size for size in CELL_WIDTHS if size * len(states) <= width), 1)
        per_row = max(width // cell, 1)
        for first in range(0, len(states), per_row):
            row = states[first : first + per_row]
            lines += [strip_row(row, cell), ruler(first, len(row), cell)]
        return lines


def title(layers: LayerStates) -> str:
    """The moment shown: the end of the last step, or now before the first one."""
    return "Layers now" if layers.step is None else f"Layers, step {layers.step:,}"


def legend(layers: LayerStates) -> StyledLine:
    """Each glyph, its meaning and the number of layers."""
    spans: list[Span] = []
    for state in ("resident", "in flight", Role.EVICTED):
        glyph, role = GLYPHS[state]
        spans += [(f"{glyph} ", role), (f"{state} ", Role.DIM)]
        spans += [(count(layers, state), Role.TEXT), ("  ", Role.PLAIN)]
    return tuple(spans[:-1])


def count(layers: LayerStates, state: str) -> str:
    """Number of layers; "?" and bytes while the layer of an upload is not known yet."""
    number = layers.states.count(state)
    if state != "in flight" or not layers.unnamed_bytes:
        return f"{number}"
    unnamed = f"? ({format_bytes(layers.unnamed_bytes)})"
    return f"{number} + {unnamed}" if number else unnamed


def strip_row(states: Sequence[str], cell: int) -> StyledLine:
    """One row of cells, each ``cell`` wide, with a blank between them if there is room."""
    blank = " " if cell > 1 else ""
    spans = []
    for state in states:
        glyph, role = GLYPHS.get(state, ("?", Role.DIM))
        body = glyph * max(cell - 1, 1) if glyph != "·" else glyph.center(max(cell - 1, 1))
        spans.append((body + blank, role))
    return tuple(spans)


def ruler(first: int, count: int, cell: int) -> StyledLine:
    """Layer numbers under every fifth or tenth cell."""
    pace = 5 if cell > 1 else 10
    marks = [" "] * (count * cell + 4)
    for index in range(-first % pace, count, pace):
        label = str(first + index)
        marks[index * cell : index * cell + len(label)] = label
    return (("".join(marks).rstrip(), Role.DIM),)
