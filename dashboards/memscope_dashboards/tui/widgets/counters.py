"""The figures that are watched while a program runs."""

from __future__ import annotations

from collections.abc import Sequence

from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.line import Line, pad, rule, spread
from memscope_dashboards.tui.reading import figure_span, is_program
from memscope_dashboards.tui.widgets.lines import LinesWidget

COUNTERS = (
    ("step time", "step.duration_ms"),
    ("waiting for uploads", "step.wait_ratio"),
    ("uploads a step", "residency.uploads_per_step"),
    ("avoidable uploads", "residency.avoidable_uploads"),
    ("entries at end", "residency.entries_at_step_end"),
    ("peak entries", "residency.peak_entries"),
    ("pool hit rate", "pool.hit_rate"),
    ("driver calls a step", "driver.calls_per_step"),
)
MORE_COUNTERS = (
    ("peak layers", "residency.peak_layers"),
    ("weights held at peak", "residency.held_bytes"),
)
PROGRAM_COUNTERS = (
    ("step time", "step.duration_ms"),
    ("unused cache", "allocator.cache_ratio"),
    ("peak, of the limit", "memory.peak_ratio"),
    ("growth", "growth.allocated"),
    ("flushes in steps", "allocator.flushes_in_steps"),
    ("cache growth", "growth.reserved_gap"),
    ("swing within a step", "allocator.swing_ratio"),
    ("time until full", "memory.time_until_full_s"),
)
TWO_COLUMNS_FROM = 64


class Counters(LinesWidget):
    """Figures over the steps after warm-up, in two columns; in one, and more, where it is tall.

    Those of a residency window where there is one, else of torch's allocator.
    """

    is_tall = False

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Line]:
        """See the class."""
        lines = [rule("Steps", step_line(snapshot), width)]
        is_plain = is_program(snapshot)
        rows = PROGRAM_COUNTERS if is_plain else COUNTERS
        if self.is_tall or width < TWO_COLUMNS_FROM:
            more = MORE_COUNTERS if self.is_tall and not is_plain else ()
            return lines + [counter(snapshot, each, width) for each in rows + more]
        return lines + in_two_columns(snapshot, rows, width)


def step_line(snapshot: Snapshot) -> Line:
    """Number of the last step that ended."""
    if snapshot.steps is None or not len(snapshot.steps):
        return (("no step has ended", "dim"),)
    return (("last step ", "dim"), (f"{int(snapshot.steps.step[-1]):,}", "strong"))


def counter(snapshot: Snapshot, row: tuple[str, str], width: int) -> Line:
    """A label at the left, its figure at the right."""
    label, name = row
    return spread(((label, "dim"),), (figure_span(snapshot, name),), width)


def in_two_columns(snapshot: Snapshot, rows: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """Two figures a line."""
    column = (width - 4) // 2
    return [
        (
            *pad(counter(snapshot, left, column), column),
            ("    ", ""),
            *counter(snapshot, right, column),
        )
        for left, right in zip(rows[::2], rows[1::2], strict=True)
    ]
