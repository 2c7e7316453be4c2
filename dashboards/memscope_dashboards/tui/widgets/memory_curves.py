"""Memory and steps over time: rows in a small terminal, charts in a large one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memscope.analysis.summary.program import ReadingSeries
from memscope.text import clean
from memscope.units import format_bytes, format_seconds, format_value
from memscope_dashboards.tui.block_characters import Array, area, columns
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.metric_text import can_exist
from memscope_dashboards.tui.palette import Role
from memscope_dashboards.tui.styled_line import StyledLine, rule, spread
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget
from memscope_dashboards.tui.widgets.memory_bar import ALLOCATED, bar_end

READINGS = {
    ALLOCATED: ("device", Role.MEMORY, 0),
    "torch.reserved_bytes": ("reserved", Role.MEMORY, 1),
    "torch.allocated_bytes": ("allocated", Role.MEMORY, 2),
    "nvml.process_bytes": ("process", Role.MEMORY, 4),
    "pool.idle_bytes": ("pool idle", Role.IDLE_LINE, 5),
    "kv.used_bytes": ("KV cache", Role.MEMORY, 6),
    "model.kv_bytes": ("KV cache", Role.MEMORY, 6),
    "host.rss_bytes": ("host RSS", Role.HOST, 3),
    "cgroup.used_bytes": ("container", Role.HOST, 7),
    "model.weights_bytes": ("weights", Role.MEMORY, 7),
    "model.gradients_bytes": ("gradients", Role.MEMORY, 7),
    "model.optimizer_bytes": ("optimizer", Role.MEMORY, 7),
    "residency.in_flight_bytes": ("in flight", Role.COUNT, 9),
}
UNKNOWN_RANK = 8
OTHER_DEVICE = 10  # added to a reading's rank
LABEL_WIDTH = 12
VALUES_WIDTH = 31
MAX_CHART_HEIGHT = 6
CHART_ROWS = 4


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve: times, values, the value that fills the chart, and the text beside it.

    Curves with a low ``rank`` are kept when space is short.
    """

    label: str
    role: Role
    t_ns: Array
    values: Array
    ceiling: float
    latest: str
    peak: str
    rank: int


class MemoryCurves(LinesWidget):
    """Readings in bytes, then duration and uploads of each step, on one time axis."""

    is_charted = False
    most_rows = 4

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[StyledLine]:
        """See the class."""
        end = format_seconds(snapshot.last_ns / 1e9)
        lines = [
            rule("Over time", ((f"0 s to {end}", Role.DIM),) if snapshot.last_ns else (), width)
        ]
        curves = [*memory_curves(snapshot), *step_curves(snapshot)]
        if not curves:
            return [*lines, (("no readings yet", Role.DIM),)]
        span = (0, snapshot.last_ns)
        if self.is_charted and height > 0:
            return lines + draw_charts(curves, span, width, height - 1)
        return lines + [draw_row(curve, span, width) for curve in pick(curves, self.most_rows)]


def memory_curves(snapshot: Snapshot) -> Iterator[Curve]:
    """A curve for each reading in bytes and device, the known ones first."""
    by_reading: dict[str, list[ReadingSeries]] = {}
    for each in snapshot.program.series:
        if each.reading_name.endswith("_bytes") and each.reading_name != "device.peak_bytes":
            by_reading.setdefault(each.reading_name, []).append(each)
    known = [name for name in READINGS if name in by_reading]
    for name in known + [name for name in by_reading if name not in READINGS]:
        fullest = max(by_reading[name], key=lambda each: each.series.peak)
        for each in by_reading[name]:
            yield memory_curve(each, bar_end(snapshot), is_fullest=each is fullest)


def memory_curve(found: ReadingSeries, end: float | None, *, is_fullest: bool) -> Curve:
    """The curve of one reading. Device memory is scaled to the limit."""
    name, readings = found.reading_name, found.series
    unknown = (clean(name.removesuffix("_bytes"), 24), Role.HOST, UNKNOWN_RANK)
    label, role, rank = READINGS.get(name, unknown)
    return Curve(
        label=label if found.device is None else f"{label[:9]} {found.device}",
        role=role,
        t_ns=readings.t_ns,
        values=readings.maximum,
        ceiling=(end if name == ALLOCATED else None) or readings.peak,
        latest=format_bytes(readings.latest),
        peak=format_bytes(readings.peak),
        rank=rank if is_fullest else rank + OTHER_DEVICE,
    )


def step_curves(snapshot: Snapshot) -> Iterator[Curve]:
    """Duration of each of the program's own steps, and uploads if there is a window."""
    steps, own = snapshot.steps, snapshot.own_steps
    if own is not None and len(own):
        ms = np.maximum(own.duration_ns, 0) / 1e6
        yield step_curve(snapshot, ("ms per step", Role.TIME, "ms"), own.end_ns, ms)
    has_uploads = snapshot.program.has_window and can_exist(snapshot, "residency.uploads_per_step")
    if steps is not None and len(steps) and has_uploads:
        yield step_curve(snapshot, ("uploads", Role.COUNT, "layers"), steps.end_ns, steps.uploads)


def step_curve(
    snapshot: Snapshot, words: tuple[str, Role, str], t_ns: Array, values: Array
) -> Curve:
    """``words``: label, role and unit. Warm-up steps do not count for the scale."""
    label, role, unit = words
    measured = values[-snapshot.measured_steps :] if snapshot.measured_steps else values
    return Curve(
        label=label,
        role=role,
        t_ns=t_ns,
        values=values,
        ceiling=float(measured.max()),
        latest=format_value(float(values[-1]), unit),
        peak=format_value(float(values.max()), unit),
        rank=1,
    )


def draw_row(curve: Curve, span_ns: tuple[int, int], width: int) -> StyledLine:
    """Label, a one-row chart, the latest value and the peak."""
    room = max(width - LABEL_WIDTH - VALUES_WIDTH, 4)
    tops = columns(curve.t_ns, curve.values, span_ns, room)
    return (
        (f"{curve.label:<{LABEL_WIDTH}.{LABEL_WIDTH}}", Role.DIM),
        (area(tops, curve.ceiling, 1)[0], curve.role),
        (f"{curve.latest:>11}", Role.TEXT),
        ("  peak ", Role.DIM),
        (f"{curve.peak:>11}", Role.TEXT),
    )


def draw_charts(
    curves: list[Curve], span_ns: tuple[int, int], width: int, height: int
) -> list[StyledLine]:
    """As many curves as fit into ``height`` rows, each with a heading."""
    count = max(min(len(curves), height // CHART_ROWS), 1)
    rows = min(max(height // count - 1, 1), MAX_CHART_HEIGHT)
    lines: list[StyledLine] = []
    for curve in pick(curves, count):
        values: StyledLine = (
            ("now ", Role.DIM),
            (curve.latest, Role.TEXT),
            ("  peak ", Role.DIM),
            (curve.peak, Role.TEXT),
        )
        lines.append(spread(((curve.label, Role.TEXT),), values, width))
        tops = columns(curve.t_ns, curve.values, span_ns, width)
        lines += [((row, curve.role),) for row in area(tops, curve.ceiling, rows)]
    return lines[:height]


def pick(curves: list[Curve], count: int) -> list[Curve]:
    """The ``count`` most important curves, in their order."""
    ranked = sorted(curves, key=lambda curve: curve.rank)
    chosen = {id(curve) for curve in ranked[:count]}
    return [curve for curve in curves if id(curve) in chosen]
