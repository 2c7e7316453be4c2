"""The processes of a run in one line: memory of each, and which one is shown."""

from __future__ import annotations

from memscope.analysis.summary.run_summary import Process, RunSummary
from memscope.text import clean
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.palette import Role
from memscope_dashboards.tui.run_feed import RunSnapshot
from memscope_dashboards.tui.styled_line import Span, StyledLine, length, spread
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget

WIDE_FROM = 110


class Processes(LinesWidget):
    """A cell per process; empty for one process. A wide terminal also says who holds most."""

    found: RunSnapshot | None = None

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[StyledLine]:
        """See the class."""
        run = self.found.run if self.found is not None else None
        if self.found is None or run is None or len(run.processes) == 1:
            return []
        lines = [process_line(run, self.found.shown or 0, width)]
        if width >= WIDE_FROM and run.sentence:
            lines.append(((clean(run.sentence, 240), Role.DIM),))
        return lines


def process_line(run: RunSummary, shown: int, width: int) -> StyledLine:
    """As many processes as fit, including the shown one, and its start time."""
    offset = f"{run.processes[shown].offset_s:+.1f} s"
    right: StyledLine = (
        (f"{shown + 1} of {len(run.processes)}", Role.STRONG),
        (f", started {offset}  ", Role.DIM),
        ("[ ]", Role.KEY),
    )
    room = width - length(right) - 2
    cells = [process_cell(process, at == shown) for at, process in enumerate(run.processes)]
    first, last = window(list(map(length, cells)), shown, room)
    left: list[Span] = [("… ", Role.DIM)] if first else []
    for cell in cells[first:last]:
        left += cell
    return spread((*left, ("…", Role.DIM)) if last < len(cells) else tuple(left), right, width)


def process_cell(process: Process, is_shown: bool) -> StyledLine:
    """Process id, rank and peak device memory."""
    name = f"{process.pid}" if process.rank is None else f"{process.pid}·r{process.rank}"
    device = process.summary.device
    held = "no GPU" if device is None or device.is_host else process.device_words
    if is_shown:
        return (("▶", Role.TITLE), (f"{name} {held}", Role.STRONG), ("  ", Role.PLAIN))
    return ((" ", Role.PLAIN), (name, Role.TEXT), (f" {held}  ", Role.DIM))


def window(widths: list[int], shown: int, room: int) -> tuple[int, int]:
    """The longest run of cells around ``shown`` that fits into ``room``, with room for dots."""
    first, last = shown, shown + 1
    used = widths[shown] + 4
    while True:
        if last < len(widths) and used + widths[last] <= room:
            used += widths[last]
            last += 1
        elif first > 0 and used + widths[first - 1] <= room:
            first -= 1
            used += widths[first]
        else:
            return first, last
