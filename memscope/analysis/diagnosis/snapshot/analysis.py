"""Everything a snapshot says about one device: its map, free memory, holders and history."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memscope.analysis.diagnosis.explanation import Diagnosis
from memscope.analysis.diagnosis.snapshot.oom_moment import OomMoment, decide_oom, last_oom
from memscope.analysis.memory_map.fragmentation import (
    Bucket,
    buckets,
    external_fragmentation,
    internal_fragmentation,
    releasable_bytes,
)
from memscope.analysis.memory_map.holders import Holder, Pin, by_label, by_stack, by_stream, pins
from memscope.analysis.memory_map.map_history import map_before
from memscope.analysis.memory_map.memory_map import MemoryMap, last_allocations, map_at_end
from memscope.analysis.replay.replay import replay
from memscope.analysis.replay.trace_growth import TraceGrowth, measure_growth
from memscope.interop.snapshot.snapshot import ALLOCATED, INACTIVE, PENDING, Snapshot
from memscope.interop.snapshot.trace import (
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Trace,
)
from memscope.interop.snapshot.values import PoolId, Stacks

HOLDERS = 10
# If nothing failed, waste is a problem from here on: bytes, and shares of reserved memory.
LEAST_WASTE_BYTES = 256 << 20
PENDING_SHARE, PRIVATE_SHARE, PINNED_SHARE = 0.25, 0.5, 0.5


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that was allocated in the trace. ``event``: the number of events until then."""

    bytes: int
    event: int
    time_us: int
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a trace. Driver calls include segments whose own event is lost."""

    events: int
    ooms: int
    device_allocs: int
    device_frees: int
    ghost_blocks: int
    ghost_bytes: int


@dataclass(frozen=True, slots=True)
class SnapshotAnalysis:
    """One device of a snapshot. ``buckets``: of the map at the dump, the largest first."""

    device: int
    devices: tuple[int, ...]
    schema: str
    settings: dict[str, object]
    pools: tuple[PoolId, ...]
    stacks: Stacks
    memory: MemoryMap
    buckets: tuple[Bucket, ...]
    pins: tuple[Pin, ...]
    stack_holders: tuple[Holder, ...]
    label_holders: tuple[Holder, ...]
    stream_holders: tuple[Holder, ...]
    counts: Counts
    peak: Peak | None
    growth: TraceGrowth | None
    oom: OomMoment | None

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What is wrong, None if nothing is."""
        growth = self.growth
        is_growing = growth is not None and growth.is_growing
        if self.oom is not None:
            named = growth if growth is not None and is_growing and growth.is_named else None
            return decide_oom(self.oom, grown_bytes=named.grown_bytes if named else 0)
        if is_growing:
            return Diagnosis.GROWTH
        wastes = (
            (Diagnosis.PENDING_FREES, self.pending_bytes, PENDING_SHARE),
            (Diagnosis.PRIVATE_POOLS, self.private_free_bytes, PRIVATE_SHARE),
            (Diagnosis.FRAGMENTATION, self.pinned_bytes, PINNED_SHARE),
        )
        for name, waste, share in wastes:
            if waste >= LEAST_WASTE_BYTES and waste >= share * self.reserved_bytes:
                return name
        return None

    @property
    def reserved_bytes(self) -> int:
        """Bytes that the driver gave to the allocator."""
        return self.memory.reserved_bytes

    @property
    def allocated_bytes(self) -> int:
        """Bytes in live blocks, rounded as the allocator does."""
        return self.memory.bytes_in(ALLOCATED)

    @property
    def pending_bytes(self) -> int:
        """Freed bytes that another stream may still use."""
        return self.memory.bytes_in(PENDING)

    @property
    def active_bytes(self) -> int:
        """Allocated and pending bytes."""
        return self.allocated_bytes + self.pending_bytes

    @property
    def requested_bytes(self) -> int:
        """Bytes in active blocks, as requested, not rounded."""
        return int(self.memory.blocks.requested.sum())

    @property
    def free_bytes(self) -> int:
        """Free bytes inside segments, private pools included."""
        return self.memory.bytes_in(INACTIVE)

    @property
    def releasable_bytes(self) -> int:
        """Free bytes that could be given back to the driver."""
        return sum(bucket.releasable_bytes for bucket in self.buckets)

    @property
    def private_free_bytes(self) -> int:
        """Free bytes inside private pools."""
        return sum(bucket.free_bytes for bucket in self.buckets if bucket.is_private)

    @property
    def pinned_bytes(self) -> int:
        """Free bytes in the default pool, in segments or pages that also hold live blocks."""
        return sum(bucket.pinned_bytes for bucket in self.buckets if not bucket.is_private)

    @property
    def largest_free_bytes(self) -> int:
        """The largest free block of the default pool."""
        sizes = (b.largest_free_bytes for b in self.buckets if not b.is_private)
        return max(sizes, default=0)

    @property
    def inactive_split_bytes(self) -> int:
        """Torch's counter: free parts of split segments, without expandable ones."""
        memory = self.memory
        segment = memory.blocks.segment
        is_split = memory.blocks.bytes != memory.segments.bytes[segment]
        is_counted = is_split & ~memory.segments.is_expandable[segment]
        is_free = memory.blocks.state == INACTIVE
        return int(memory.blocks.bytes[is_counted & is_free].sum())

    @property
    def is_expandable(self) -> bool:
        """Whether any segment is expandable, or the setting says so."""
        has_setting = self.settings.get("expandable_segments") is True
        return has_setting or bool(self.memory.segments.is_expandable.any())

    @property
    def external(self) -> float | None:
        """1 − largest free block / free bytes, without private pools; None if nothing is free."""
        free = sum(b.free_bytes for b in self.buckets if not b.is_private)
        return external_fragmentation(self.largest_free_bytes, free)

    @property
    def internal(self) -> float | None:
        """(allocated − requested) / allocated; None if nothing is allocated."""
        requested = sum(bucket.requested_bytes for bucket in self.buckets)
        return internal_fragmentation(self.allocated_bytes, requested)


def analyse_snapshot(snapshot: Snapshot, device: int | None = None) -> SnapshotAnalysis:
    """Analyse ``device``: by default the one that ran out of memory last, else the fullest."""
    device = _chosen(snapshot) if device is None else device
    memory = map_at_end(snapshot, device)
    stacks = snapshot.stacks
    trace = snapshot.traces.get(device)
    oom = peak = growth = None
    if trace is not None:
        played = replay(trace, memory)
        oom = last_oom(trace, memory, _max_split(snapshot))
        peak = _peak(trace, memory, played.peak_event, played.peak_bytes, stacks)
        annotations = snapshot.annotations
        growth = measure_growth(trace, played, memory, stacks, annotations, device)
    shown = memory if oom is None else oom.memory
    is_free = shown.blocks.state == INACTIVE
    pinned = is_free * shown.blocks.bytes - releasable_bytes(shown)
    return SnapshotAnalysis(
        device=device,
        devices=tuple(snapshot.devices),
        schema=snapshot.schema,
        settings=snapshot.settings,
        pools=snapshot.pools,
        stacks=stacks,
        memory=memory,
        buckets=buckets(memory),
        pins=pins(shown, stacks, pinned * (shown.pool == 0)),
        stack_holders=by_stack(shown, stacks, HOLDERS),
        label_holders=by_label(shown, HOLDERS),
        stream_holders=by_stream(shown, HOLDERS),
        counts=_counts(trace, memory),
        peak=peak,
        growth=growth,
        oom=oom,
    )


def _chosen(snapshot: Snapshot) -> int:
    """The device with the last out-of-memory event, else the one with the most reserved memory."""
    failed = {
        device: int(trace.time_us[trace.where(OOM)].max())
        for device, trace in snapshot.traces.items()
        if (trace.action == OOM).any()
    }
    if failed:
        return max(failed, key=lambda device: failed[device])
    segments = snapshot.segments
    sizes = {
        device: int(segments.bytes[segments.device == device].sum()) for device in snapshot.devices
    }
    return max(sizes, key=lambda device: sizes[device], default=0)


def _max_split(snapshot: Snapshot) -> int:
    size = snapshot.settings.get("max_split_size")
    return size if type(size) is int and 0 < size < 1 << 50 else 0


def _peak(trace: Trace, end: MemoryMap, event: int, size: int, stacks: Stacks) -> Peak:
    alive = map_before(end, trace, event)
    time_us = int(trace.time_us[event - 1]) if event else -1
    return Peak(size, event, time_us, by_stack(alive, stacks, HOLDERS))


def _counts(trace: Trace | None, memory: MemoryMap) -> Counts:
    if trace is None:
        return Counts(0, 0, 0, 0, 0, 0)
    made = last_allocations(trace, len(trace), memory.blocks.address)
    ghosts = memory.is_live & (made < 0)
    came = trace.where(SEGMENT_ALLOC)
    known = set(trace.address[came].tolist())
    gone = trace.address[trace.where(SEGMENT_FREE)].tolist()
    whole = memory.segments.address[~memory.segments.is_expandable].tolist()
    unseen = {address for address in (*whole, *gone) if address not in known}
    mapped = _unmapped_events(trace, memory)
    return Counts(
        events=len(trace),
        ooms=len(trace.where(OOM)),
        device_allocs=len(came) + len(unseen) + len(trace.where(SEGMENT_MAP)) + mapped,
        device_frees=len(gone) + len(trace.where(SEGMENT_UNMAP)),
        ghost_blocks=int(ghosts.sum()),
        ghost_bytes=int(memory.blocks.bytes[ghosts].sum()),
    )


def _unmapped_events(trace: Trace, memory: MemoryMap) -> int:
    """Expandable segments without a map event in the trace: each was mapped at least once."""
    rows = trace.where(SEGMENT_MAP)
    rows = rows[np.argsort(trace.address[rows], kind="stable")]
    starts = memory.segments.address[memory.segments.is_expandable]
    reach = np.concatenate([[0], np.maximum.accumulate(trace.address[rows] + trace.bytes[rows])])
    return int((reach[np.searchsorted(trace.address[rows], starts, side="right")] <= starts).sum())
