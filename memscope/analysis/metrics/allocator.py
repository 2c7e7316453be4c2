"""Metrics of torch's caching allocator: unused memory, rounding and cache flushes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from memscope.analysis.metrics.memory import find_device, find_devices
from memscope.analysis.metrics.metric import (
    DeviceValue,
    Measured,
    Missing,
    Negligible,
    highest_of,
    on_devices,
)
from memscope.analysis.timeline.flushes import Flushes
from memscope.analysis.timeline.series import Series
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import probe_fact
from memscope.units import format_bytes

LEAST_GAP_BYTES = 256 << 20
LEAST_GAP_SHARE = 0.01

NOT_SAMPLED = Missing("torch's allocator counters are not sampled")


def cache_ratio(timeline: Timeline) -> DeviceValue | Missing | Negligible:
    """(reserved − allocated) / reserved: the median of readings within steps after warm-up.

    With several devices, the highest ratio of the devices whose gap is large enough to matter.
    """
    ratios, gaps = _within_steps(timeline, "cache_ratio"), _within_steps(timeline, "unused")
    if isinstance(ratios, Missing) or isinstance(gaps, Missing):
        return ratios if isinstance(ratios, Missing) else NOT_SAMPLED
    highest = highest_of(ratios)
    large = {
        device: ratio
        for device, ratio in ratios.items()
        if gaps.get(device, 0.0) >= _least_gap(timeline, device)
    }
    if large:
        return replace(highest_of(large), devices=highest.devices)
    gap = gaps.get(highest.device, 0.0)
    return Negligible(highest, f"too small to matter: {format_bytes(gap)}")


@dataclass(frozen=True, slots=True)
class Unused:
    """Memory that torch reserved and does not use: share of reserved memory, and bytes."""

    ratio: float
    bytes: float


def unused_on(timeline: Timeline, device: int) -> Unused | None:
    """Medians of readings within steps after warm-up; None if the device has no such reading."""
    ratios, gaps = _within_steps(timeline, "cache_ratio"), _within_steps(timeline, "unused")
    if isinstance(ratios, Missing) or isinstance(gaps, Missing):
        return None
    is_read = device in ratios and device in gaps
    return Unused(ratios[device], gaps[device]) if is_read else None


def _least_gap(timeline: Timeline, index: int) -> int:
    """Gaps below this number of bytes do not matter."""
    devices = find_devices(timeline)
    device = devices.get(index) or next(iter(devices.values()), None)
    total = device.total_bytes if device is not None else None
    return max(LEAST_GAP_BYTES, round(LEAST_GAP_SHARE * (total or 0)))


def rounding_ratio(timeline: Timeline) -> DeviceValue | Missing:
    """(allocated − requested) / allocated at the last reading."""
    missing = _missing(timeline)
    if missing is not None:
        return missing
    ratios = {
        device: each.rounding_ratio.latest
        for device, each in timeline.counters.items()
        if each.rounding_ratio
    }
    if not ratios:
        return Missing("torch's requested bytes are not sampled")
    return highest_of(ratios)


def swing_ratio(timeline: Timeline) -> DeviceValue | Missing:
    """(most − least allocated within a step) / most: the median of steps with enough readings."""
    missing = _missing(timeline)
    if missing is not None:
        return missing
    start = warmup_end_ns(timeline)
    ratios = {
        device: float(np.median(values))
        for device, each in timeline.counters.items()
        if (series := each.swing_ratio) is not None
        and len(values := series.last[series.t_ns > start])
    }
    if not ratios:
        return Missing("no step after warm-up has enough readings of torch's counters")
    return highest_of(ratios)


def flushes_in_steps(timeline: Timeline) -> Measured:
    """Number of empty_cache calls after warm-up."""
    missing = _missing(timeline, needs_counters=False)
    if missing is not None:
        return missing
    if not timeline.counters and not timeline.counts.get("allocator_flush"):
        return NOT_SAMPLED  # no GPU was used, so there was nothing to flush
    is_watched = probe_fact("allocator_flush") in timeline.facts
    if not is_watched and not timeline.counts.get("allocator_flush"):
        return Missing("calls of torch.cuda.empty_cache() are not recorded")
    if not len(timeline.measured_steps):
        return Missing("no step has ended after warm-up")
    return find_flushes(timeline).count


def find_flushes(timeline: Timeline) -> Flushes:
    """The empty_cache calls after warm-up."""
    return timeline.flushes_after(warmup_end_ns(timeline))


def warmup_end_ns(timeline: Timeline) -> int:
    """End of the last warm-up step; −1 if there is none."""
    ends = timeline.steps.end_ns[: timeline.warmup_steps]
    return int(ends[-1]) if len(ends) else -1


def _within_steps(timeline: Timeline, name: str) -> dict[int, float] | Missing:
    """Device → the median of its readings within steps after warm-up."""
    missing = _missing(timeline)
    if missing is not None:
        return missing
    if not len(timeline.measured_steps):
        return Missing("no step has ended after warm-up")
    medians = {
        device: float(np.median(values))
        for device, each in timeline.counters.items()
        if (series := getattr(each, name)) is not None and len(values := _inside(timeline, series))
    }
    if not medians:
        return Missing("torch's allocator counters are not sampled within steps")
    return on_devices(medians)


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
