"""Fragmentation as a recording shows it: over time by torch's counters, and of its map.

reserved − allocated is what torch holds without use. The part of it inside segments in partial use
(torch's inactive split) cannot be given back; the rest can, or waits for another stream. For
expandable segments torch does not count that part (CUDACachingAllocator.cpp).
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

_NO_MAP = Missing("the allocator's map is not recorded: it is only where memory ran out")
_HOST = Missing("torch's caching allocator serves GPUs, and this is a host device", False)


@dataclass(frozen=True, slots=True)
class UnusedMemory:
    """Bytes that one device's torch reserved and had not allocated.

    ``split``: the part inside segments in partial use; None where torch does not count it, and
    ``reason`` says why.
    """

    device: int
    unused: Series
    split: Series | None
    reason: str | None = None


def unused_memory(timeline: Timeline) -> UnusedMemory | None:
    """Of the first device that has readings of both counters; None where none has."""
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
    """1 − largest free block / free bytes of the last map, private pools left out."""
    device = find_device(timeline)
    if device is not None and device.is_host:
        return _HOST
    found = recorded_map(timeline)
    if found is None:
        return _NO_MAP
    own = [bucket for bucket in buckets(found.memory) if not bucket.is_private]
    largest = max((bucket.largest_free_bytes for bucket in own), default=0)
    measured = external_fragmentation(largest, sum(bucket.free_bytes for bucket in own))
    return Missing("nothing is free inside segments", False) if measured is None else measured
