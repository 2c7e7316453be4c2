"""Fragmentation in a recording: over time from torch's counters, and at one moment from its map.

Reserved − allocated is memory that torch holds unused. Its part inside partly used segments
(torch's inactive split) cannot be given back. The rest can, or waits for another stream. Torch does
not count that part for expandable segments (CUDACachingAllocator.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass

from memscope.analysis.memory_map.fragmentation import buckets, external_fragmentation
from memscope.analysis.memory_map.recorded_map import recorded_map
from memscope.analysis.metrics.memory import find_device
from memscope.analysis.metrics.metric import Measured, Missing
from memscope.analysis.timeline.series import Series
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import Fact

_NO_MAP = Missing("the allocator's map is recorded only when memory runs out")
_HOST = Missing("torch's caching allocator serves GPUs, and this is a host device", False)


@dataclass(frozen=True, slots=True)
class UnusedMemory:
    """Bytes over time that torch reserved and had not allocated on one device.

    ``split``: the part inside partly used segments; None if torch does not count it (see
    ``reason``).
    """

    device: int
    unused: Series
    split: Series | None
    reason: str | None = None


def unused_memory(timeline: Timeline) -> UnusedMemory | None:
    """Unused memory of the first device with both counters; None if no device has them."""
    for device, counters in timeline.counters.items():
        if counters.gap is not None:
            return _with_split(timeline, device, counters.gap)
    return None


def _with_split(timeline: Timeline, device: int, unused: Series) -> UnusedMemory:
    if timeline.fact(Fact.ALLOCATOR, "is_expandable"):
        reason = "torch does not count free parts of expandable segments"
        return UnusedMemory(device, unused, None, reason)
    readings = timeline.readings_of("torch.inactive_split_bytes").get(device)
    if readings is None:
        return UnusedMemory(device, unused, None, "free parts of segments are not recorded")
    return UnusedMemory(device, unused, readings.series)


def map_fragmentation(timeline: Timeline) -> Measured:
    """1 − largest free block / free bytes in the last map, without private pools."""
    device = find_device(timeline)
    if device is not None and device.is_host:
        return _HOST
    recorded = recorded_map(timeline)
    if recorded is None:
        return _NO_MAP
    own = [bucket for bucket in buckets(recorded.memory) if not bucket.is_private]
    largest = max((bucket.largest_free_bytes for bucket in own), default=0)
    measured = external_fragmentation(largest, sum(bucket.free_bytes for bucket in own))
    return Missing("no memory is free inside segments", False) if measured is None else measured
