"""Torch's caching allocator: what it holds without use, and how it is flushed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from memscope.analysis.figure import Measured, Missing, Negligible
from memscope.analysis.flushes import Flushes
from memscope.analysis.memory import find_device
from memscope.analysis.series import Series
from memscope.analysis.timeline import Timeline
from memscope.units import format_bytes

LEAST_GAP_BYTES = 256 << 20
LEAST_GAP_SHARE = 0.01

NOT_SAMPLED = Missing("torch's allocator counters are not sampled")


def cache_ratio(timeline: Timeline) -> Measured | Negligible:
    """(reserved − allocated) / reserved, median of the readings within steps after warm-up."""
    ratios = _within_steps(timeline, "cache_ratio")
    gaps = _within_steps(timeline, "unused")
    if isinstance(ratios, Missing) or isinstance(gaps, Missing):
        return ratios if isinstance(ratios, Missing) else NOT_SAMPLED
    ratio, gap = float(np.median(ratios)), float(np.median(gaps))
    bound = LEAST_GAP_BYTES
    device = find_device(timeline)
    if device is not None and device.total_bytes:
        bound = max(bound, round(LEAST_GAP_SHARE * device.total_bytes))
    if gap < bound:
        return Negligible(ratio, f"too small to matter: {format_bytes(gap)}")
    return ratio


def gap_bytes(timeline: Timeline) -> Measured:
    """reserved − allocated, median of the readings within steps after warm-up."""
    gaps = _within_steps(timeline, "unused")
    return gaps if isinstance(gaps, Missing) else float(np.median(gaps))


def rounding_ratio(timeline: Timeline) -> Measured:
    """(allocated − requested) / allocated, the last reading."""
    missing = _missing(timeline)
    if missing is not None:
        return missing
    found = [each.rounding_ratio for each in timeline.counters.values() if each.rounding_ratio]
    if not found:
        return Missing("the bytes that were requested of torch's allocator are not sampled")
    return max(series.latest for series in found)


def swing_ratio(timeline: Timeline) -> Measured:
    """(most − least allocated within a step) / most, median of steps that were read often."""
    missing = _missing(timeline)
    if missing is not None:
        return missing
    start = warmup_end_ns(timeline)
    found = [
        series.last[series.t_ns > start]
        for each in timeline.counters.values()
        if (series := each.swing_ratio) is not None
    ]
    values = np.concatenate(found) if found else np.empty(0)
    if not len(values):
        return Missing("no step after warm-up holds enough readings of torch's counters")
    return float(np.median(values))


def flushes_in_steps(timeline: Timeline) -> Measured:
    """Calls of empty_cache after warm-up."""
    missing = _missing(timeline, needs_counters=False)
    if missing is not None:
        return missing
    if not timeline.counters and not timeline.counts.get("allocator_flush"):
        return NOT_SAMPLED  # no GPU was used, and so there was nothing to flush
    is_watched = "probe.allocator_flush" in timeline.facts
    if not is_watched and not timeline.counts.get("allocator_flush"):
        return Missing("nothing watches torch.cuda.empty_cache()")
    if not len(timeline.measured_steps):
        return Missing("no step has ended after warm-up")
    return find_flushes(timeline).count


def find_flushes(timeline: Timeline) -> Flushes:
    """Flushes after warm-up."""
    return timeline.flushes_after(warmup_end_ns(timeline))


def warmup_end_ns(timeline: Timeline) -> int:
    """When the last step of warm-up ended; -1 without any."""
    ends = timeline.steps.end_ns[: timeline.warmup_steps]
    return int(ends[-1]) if len(ends) else -1


def _within_steps(timeline: Timeline, name: str) -> npt.NDArray[np.float64] | Missing:
    """Readings within steps after warm-up, of the device that is worst."""
    missing = _missing(timeline)
    if missing is not None:
        return missing
    if not len(timeline.measured_steps):
        return Missing("no step has ended after warm-up")
    found = [
        values
        for each in timeline.counters.values()
        if (series := getattr(each, name)) is not None and len(values := _inside(timeline, series))
    ]
    if not found:
        return Missing("torch's allocator counters are not sampled within steps")
    return max(found, key=lambda values: float(np.median(values)))


def _inside(timeline: Timeline, series: Series) -> npt.NDArray[np.float64]:
    steps = timeline.measured_steps
    index = np.minimum(np.searchsorted(steps.end_ns, series.t_ns), len(steps) - 1)
    is_inside = (series.t_ns >= steps.start_ns[index]) & (series.t_ns <= steps.end_ns[index])
    return series.last[is_inside]


def _missing(timeline: Timeline, *, needs_counters: bool = True) -> Missing | None:
    device = find_device(timeline)
    if device is not None and device.is_host:
        return Missing("torch's caching allocator serves GPUs, and this is a host device", False)
    return NOT_SAMPLED if needs_counters and not timeline.counters else None
