"""Device memory by kind at the end of the last step, against the device limit."""

from __future__ import annotations

from memscope.units import format_bytes
from memscope_dashboards.tui.block_characters import bar
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.metric_text import can_exist, metric_span, metric_value
from memscope_dashboards.tui.palette import Role
from memscope_dashboards.tui.styled_line import Span, StyledLine, length, rule
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget

PARTS = (
    ("residency.resident_bytes", "resident", "█", Role.RESIDENT),
    ("residency.in_flight_bytes", "in flight", "▒", Role.IN_FLIGHT),
    ("pool.idle_bytes", "idle", "░", Role.IDLE),
)
ALLOCATED = "device.allocated_bytes"
RATIO = "memory.peak_ratio"
LEAST_SHARE = 0.05


class MemoryBar(LinesWidget):
    """Resident, in flight, idle and other bytes side by side. A full bar is the limit."""

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[StyledLine]:
        """See the class."""
        lines = [rule(device_title(snapshot), peak_line(snapshot), width)]
        if snapshot.summary is None:
            return lines
        return [*lines, bar_line(snapshot, width), legend(snapshot, width)]


def device_title(snapshot: Snapshot) -> str:
    """The device that the bar shows: "Host device", "GPU" or "Device"."""
    kind = snapshot.device.kind if snapshot.device else ""
    name = {"host": "Host device", "cuda": "GPU"}.get(kind, "Device")
    return f"{name}, up to the peak" if is_up_to_peak(snapshot) else name


def peak_line(snapshot: Snapshot) -> StyledLine:
    """Allocated memory now, the peak, the limit, and the peak's share of the limit."""
    allocated = latest(snapshot, ALLOCATED)
    now: StyledLine = (
        () if allocated is None else (("now ", Role.DIM), (format_bytes(allocated), Role.TEXT))
    )
    usable = snapshot.device.usable_bytes if snapshot.device else None
    limit: StyledLine = ((" of ", Role.DIM), (format_bytes(usable), Role.TEXT)) if usable else ()
    ratio = metric_value(snapshot, RATIO)
    share: StyledLine = () if ratio is None else ((", ", Role.DIM), metric_span(snapshot, RATIO))
    gap: StyledLine = (("  ", Role.PLAIN),) if now else ()
    return (
        *now,
        *gap,
        ("peak ", Role.DIM),
        metric_span(snapshot, "memory.peak_bytes"),
        *limit,
        *share,
    )


def bar_line(snapshot: Snapshot, width: int) -> StyledLine:
    """The bar: the measured parts, other memory, then free memory."""
    sizes = [metric_value(snapshot, name) or 0.0 for name, *_ in PARTS]
    parts = [(size, glyph, role) for size, (_, _, glyph, role) in zip(sizes, PARTS, strict=True)]
    allocated = latest(snapshot, ALLOCATED) or sum(sizes)
    parts.append((allocated - sum(sizes), "▚", Role.OTHER))
    spans = bar(parts, bar_end(snapshot) or allocated, width)
    drawn = sum(len(text) for text, _ in spans)
    return (*spans, ("·" * (width - drawn), Role.FREE))


def bar_end(snapshot: Snapshot) -> float | None:
    """Bytes that fill the bar: the limit, or the peak if it would be too small to see."""
    usable = snapshot.device.usable_bytes if snapshot.device else None
    peak = metric_value(snapshot, "memory.peak_bytes")
    if usable and (peak is None or peak >= usable * LEAST_SHARE):
        return float(usable)
    return peak


def legend(snapshot: Snapshot, width: int) -> StyledLine:
    """Each part's glyph, name and size."""
    spans: list[Span] = []
    for name, label, glyph, role in PARTS:
        if not can_exist(snapshot, name):
            continue
        spans += [(f"{glyph} ", role), (f"{label} ", Role.DIM), metric_span(snapshot, name)]
        spans.append(("  ", Role.PLAIN))
    other: StyledLine = (("▚ ", Role.OTHER), ("other", Role.DIM))
    return (*spans, *other) if length((*spans, *other)) <= width else tuple(spans)


def is_up_to_peak(snapshot: Snapshot) -> bool:
    """Whether a full bar stands for the peak and not the limit."""
    usable = snapshot.device.usable_bytes if snapshot.device else None
    end = bar_end(snapshot)
    return bool(usable) and end is not None and end != usable


def latest(snapshot: Snapshot, reading_name: str) -> int | None:
    """The last reading of that name in bytes; None if there is none."""
    return snapshot.program.latest_bytes.get(reading_name)
