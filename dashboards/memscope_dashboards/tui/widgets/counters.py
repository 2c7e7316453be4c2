"""The main metrics of a running program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from memscope.analysis.metrics.table import METRICS
from memscope.units import format_bytes
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.metric_text import (
    can_exist,
    find_metric,
    has_device,
    metric_span,
    metric_value,
)
from memscope_dashboards.tui.palette import Role
from memscope_dashboards.tui.styled_line import Span, StyledLine, pad, rule, spread
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget

_LIVE = [(row.live, row.name) for row in METRICS if row.live is not None]
WINDOW_METRICS = sorted((cell.window, cell.label, name) for cell, name in _LIVE if cell.window)
PROGRAM_METRICS = sorted((cell.program, cell.label, name) for cell, name in _LIVE if cell.program)
HELD = (
    ("host RSS", "host.rss_bytes"),
    ("KV cache", "model.kv_bytes"),
    ("weights", "model.weights_bytes"),
    ("gradients", "model.gradients_bytes"),
    ("optimizer state", "model.optimizer_bytes"),
    ("allocated", "torch.allocated_bytes"),
    ("reserved", "torch.reserved_bytes"),
    ("container", "cgroup.used_bytes"),
)
TWO_COLUMNS_FROM = 64
MOST_CELLS = 8  # when space is short

Cell = tuple[str, Span]


class Counters(LinesWidget):
    """Metrics over the steps after warm-up, in two columns, or in one if the terminal is tall.

    Shows the residency window if the program has one, else torch's allocator and memory held now.
    A metric that does not apply to the program has no cell.
    """

    is_tall = False

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[StyledLine]:
        """See the class."""
        lines = [rule("Steps", step_line(snapshot), width)]
        cells = window_cells if snapshot.program.has_window else program_cells
        found = list(cells(snapshot))
        shown = found if self.is_tall else found[:MOST_CELLS]
        if self.is_tall or width < TWO_COLUMNS_FROM:
            return lines + [cell_line(cell, width) for cell in shown]
        return lines + in_two_columns(shown, width)


def window_cells(snapshot: Snapshot) -> Iterator[Cell]:
    """Cells for a program with a residency window."""
    for _, label, name in WINDOW_METRICS:
        if can_exist(snapshot, name):
            yield label, metric_span(snapshot, name)


def program_cells(snapshot: Snapshot) -> Iterator[Cell]:
    """Cells for any other program. Without a device, the allocator's cells are left out."""
    for _, label, name in PROGRAM_METRICS:
        is_seen = metric_value(snapshot, name) is not None
        if is_seen or (has_device(snapshot) and can_exist(snapshot, name)):
            yield label + place(snapshot, name), metric_span(snapshot, name)
    for label, reading_name in HELD:
        size = snapshot.program.latest_bytes.get(reading_name)
        if size is not None:
            several = ", all GPUs" if reading_name in snapshot.program.on_several else ""
            yield f"{label} now{several}", (format_bytes(size), Role.TEXT)


def place(snapshot: Snapshot, name: str) -> str:
    """The device of the metric ``name``, if the process used several."""
    metric = find_metric(snapshot, name)
    return f", {metric.device}" if metric is not None and metric.device else ""


def step_line(snapshot: Snapshot) -> StyledLine:
    """Number of the program's last finished step."""
    if snapshot.own_steps is None or not len(snapshot.own_steps):
        has_ended = snapshot.steps is not None and len(snapshot.steps) > 0
        nothing = "no steps of its own" if has_ended else "no step has ended"
        return ((nothing, Role.DIM),)
    return (("last step ", Role.DIM), (f"{int(snapshot.own_steps.step[-1]):,}", Role.STRONG))


def cell_line(cell: Cell, width: int) -> StyledLine:
    """A label at the left, its metric at the right."""
    label, value = cell
    return spread(((label, Role.DIM),), (value,), width)


def in_two_columns(cells: Sequence[Cell], width: int) -> list[StyledLine]:
    """Two metrics per line."""
    column = (width - 4) // 2
    lines = [cell_line(cell, column) for cell in cells]
    return [
        (*pad(left, column), ("    ", Role.PLAIN), *right)
        for left, right in zip_longest(lines[::2], lines[1::2], fillvalue=())
    ]
