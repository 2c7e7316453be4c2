"""One device's segments and blocks, as they are dumped or as they were at a moment of the trace.

An earlier moment is had by taking later events back: the first event of an address after the moment
tells what stood there at the moment. Source of the rounding: CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memscope.interop.snapshot_trace import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Trace,
)
from memscope.interop.torch_snapshot import ALLOCATED, INACTIVE, PENDING, Blocks, Segments, Snapshot

Numbers = npt.NDArray[np.int64]

ROUNDING_BYTES = 512
SMALL_BYTES = 1 << 20  # up to here a request is served from small segments
SMALL_SEGMENT_BYTES = 2 << 20
LARGE_PAGE_BYTES = 20 << 20  # what an expandable segment maps and unmaps; small ones 2 MiB


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """``blocks.segment`` are rows of ``segments``. ``label``: the user's own metadata, 0 is none."""

    segments: Segments
    blocks: Blocks
    label: Numbers
    labels: tuple[str, ...]

    @property
    def reserved_bytes(self) -> int:
        """Bytes that the driver gave."""
        return int(self.segments.bytes.sum())

    @property
    def is_live(self) -> npt.NDArray[np.bool_]:
        """Which blocks are not free: allocated, or freed while another stream may use them."""
        return self.blocks.state != INACTIVE

    def bytes_in(self, *states: int) -> int:
        """Bytes of blocks in these states."""
        return int(self.blocks.bytes[np.isin(self.blocks.state, states)].sum())

    @property
    def stream(self) -> Numbers:
        """Stream of each block."""
        return self.segments.stream[self.blocks.segment]

    @property
    def pool(self) -> Numbers:
        """Memory pool of each block, a number into ``Snapshot.pools``."""
        return self.segments.pool[self.blocks.segment]


def round_size(requested: Numbers) -> Numbers:
    """What a request takes of a block."""
    whole = -(-requested // ROUNDING_BYTES) * ROUNDING_BYTES
    return np.maximum(whole, ROUNDING_BYTES)


def map_at_end(snapshot: Snapshot, device: int) -> MemoryMap:
    """The map as it was dumped."""
    is_ours = snapshot.segments.device == device
    segments = take_segments(snapshot.segments, is_ours)
    rows = np.cumsum(is_ours) - 1
    kept = is_ours[snapshot.blocks.segment]
    blocks = take_blocks(snapshot.blocks, kept)
    blocks = Blocks(
        rows[blocks.segment],
        blocks.address,
        blocks.bytes,
        blocks.requested,
        blocks.state,
        blocks.stack,
    )
    trace = snapshot.traces.get(device)
    if trace is None:
        return MemoryMap(segments, blocks, np.zeros(len(blocks), dtype=np.int64), ("",))
    made = last_allocations(trace, len(trace), blocks.address)
    label = np.where(made >= 0, trace.label[made], 0)
    stack = np.where((blocks.stack < 0) & (made >= 0), trace.stack[made], blocks.stack)
    label = np.where(blocks.state == INACTIVE, 0, label)
    stack = np.where(blocks.state == INACTIVE, -1, stack)
    blocks = Blocks(
        blocks.segment, blocks.address, blocks.bytes, blocks.requested, blocks.state, stack
    )
    return MemoryMap(segments, blocks, label, trace.labels)


def map_before(end: MemoryMap, trace: Trace, event: int) -> MemoryMap:
    """The map just before event number ``event``, later ones taken back.

    Blocks freed since are as large as their request rounded, which may be less than they were.
    """
    if event >= len(trace) or not (trace.action[event:] <= SEGMENT_UNMAP).any():
        return end
    segments = _segments_before(end.segments, trace, event)
    return _lay_out(segments, _live_before(end, trace, event), trace)


def last_allocations(trace: Trace, before: int, addresses: Numbers) -> Numbers:
    """Row of the last alloc event of each address before row ``before``; −1 where none is."""
    rows = trace.where(ALLOC)
    rows = rows[rows < before][::-1]
    known, first = np.unique(trace.address[rows], return_index=True)
    return _look_up(known, rows[first], addresses)


def take_segments(segments: Segments, which: npt.NDArray[np.bool_]) -> Segments:
    """Some of the segments."""
    return Segments(
        segments.device[which],
        segments.address[which],
        segments.bytes[which],
        segments.stream[which],
        segments.pool[which],
        segments.is_small[which],
        segments.is_expandable[which],
    )


def take_blocks(blocks: Blocks, which: npt.NDArray[np.bool_]) -> Blocks:
    """Some of the blocks."""
    return Blocks(
        blocks.segment[which],
        blocks.address[which],
        blocks.bytes[which],
        blocks.requested[which],
        blocks.state[which],
        blocks.stack[which],
    )


@dataclass(frozen=True, slots=True)
class _Live:
    """Live blocks at a moment, by address. ``event``: of the last alloc, −1 where unknown."""

    address: Numbers
    bytes: Numbers
    requested: Numbers
    state: Numbers
    stack: Numbers
    label: Numbers
    is_estimated: npt.NDArray[np.bool_]


def _look_up(known: Numbers, values: Numbers, wanted: Numbers) -> Numbers:
    """``values`` of the sorted keys ``known`` for ``wanted``; −1 where there is no such key."""
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, values[place], -1)


def _first_after(trace: Trace, event: int, *actions: int) -> Numbers:
    """Row of the first event of each address from ``event`` on, among these actions."""
    rows = trace.where(*actions)
    rows = rows[rows >= event]
    _, first = np.unique(trace.address[rows], return_index=True)
    return rows[first]


def _live_before(end: MemoryMap, trace: Trace, event: int) -> _Live:
    first = _first_after(trace, event, ALLOC, FREE_REQUESTED, FREE_COMPLETED)
    kept = end.is_live & ~np.isin(end.blocks.address, trace.address[first])
    back = first[trace.action[first] != ALLOC]
    made = last_allocations(trace, event, trace.address[back])
    source = np.where(made >= 0, made, back)
    state = np.where(trace.action[back] == FREE_REQUESTED, ALLOCATED, PENDING)
    requested = trace.bytes[back]
    blocks = end.blocks
    address = np.concatenate([blocks.address[kept], trace.address[back]])
    order = np.argsort(address, kind="stable")
    return _Live(
        address=address[order],
        bytes=np.concatenate([blocks.bytes[kept], round_size(requested)])[order],
        requested=np.concatenate([blocks.requested[kept], requested])[order],
        state=np.concatenate([blocks.state[kept], state])[order],
        stack=np.concatenate([blocks.stack[kept], trace.stack[source]])[order],
        label=np.concatenate([end.label[kept], trace.label[source]])[order],
        is_estimated=np.concatenate(
            [np.zeros(int(kept.sum()), dtype=bool), np.ones(len(back), dtype=bool)]
        )[order],
    )


def _segments_before(end: Segments, trace: Trace, event: int) -> Segments:
    first = _first_after(trace, event, SEGMENT_ALLOC, SEGMENT_FREE)
    came = trace.address[first[trace.action[first] == SEGMENT_ALLOC]]
    whole = take_segments(end, ~end.is_expandable & ~np.isin(end.address, came))
    gone = first[trace.action[first] == SEGMENT_FREE]
    gone = gone[~np.isin(trace.address[gone], whole.address)]
    parts = [whole, _from_events(trace, gone), _mapped_before(end, trace, event)]
    joined = Segments(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in (
                "device",
                "address",
                "bytes",
                "stream",
                "pool",
                "is_small",
                "is_expandable",
            )
        )
    )
    order = np.argsort(joined.address, kind="stable")
    start, stop = joined.address[order], (joined.address + joined.bytes)[order]
    free_of_others = np.concatenate([[True], start[1:] >= np.maximum.accumulate(stop)[:-1]])
    return take_segments(joined, order[free_of_others[: len(order)]])


def _from_events(trace: Trace, rows: Numbers) -> Segments:
    size = trace.bytes[rows]
    return Segments(
        device=np.zeros(len(rows), dtype=np.int64),
        address=trace.address[rows],
        bytes=size,
        stream=trace.stream[rows],
        pool=np.maximum(trace.pool[rows], 0),
        is_small=size == SMALL_SEGMENT_BYTES,
        is_expandable=np.zeros(len(rows), dtype=bool),
    )


def _mapped_before(end: Segments, trace: Trace, event: int) -> Segments:
    """Ranges of expandable segments: those of the end, less what was mapped, plus what was unmapped."""
    ours = take_segments(end, end.is_expandable)
    rows = trace.where(SEGMENT_MAP, SEGMENT_UNMAP)
    rows = rows[rows >= event]
    if not len(rows):
        return ours
    sign = np.where(trace.action[rows] == SEGMENT_MAP, -1, 1)
    starts = np.concatenate([ours.address, trace.address[rows]])
    stops = np.concatenate([ours.address + ours.bytes, trace.address[rows] + trace.bytes[rows]])
    weight = np.concatenate([np.ones(len(ours), dtype=np.int64), sign])
    edges, inverse = np.unique(np.concatenate([starts, stops]), return_inverse=True)
    change = np.zeros(len(edges), dtype=np.int64)
    np.add.at(change, inverse, np.concatenate([weight, -weight]))
    covered = np.cumsum(change) > 0
    begins = np.flatnonzero(covered & ~np.concatenate([[False], covered[:-1]]))
    ends = np.flatnonzero(~covered & np.concatenate([[False], covered[:-1]]))
    return _describe(edges[begins], edges[ends], ours, trace, rows)


def _describe(
    starts: Numbers, stops: Numbers, ours: Segments, trace: Trace, rows: Numbers
) -> Segments:
    """Stream, pool and size class of each range: those of the segment or event that it lies in."""
    address = np.concatenate([ours.address, trace.address[rows]])
    order = np.argsort(address, kind="stable")
    place = order[np.maximum(np.searchsorted(address[order], starts, side="right") - 1, 0)]
    size = trace.bytes[rows]
    stream = np.concatenate([ours.stream, trace.stream[rows]])
    pool = np.concatenate([ours.pool, np.maximum(trace.pool[rows], 0)])
    is_small = np.concatenate([ours.is_small, size % LARGE_PAGE_BYTES != 0])
    return Segments(
        device=np.zeros(len(starts), dtype=np.int64),
        address=starts,
        bytes=stops - starts,
        stream=stream[place],
        pool=pool[place],
        is_small=is_small[place],
        is_expandable=np.ones(len(starts), dtype=bool),
    )


def _lay_out(segments: Segments, live: _Live, trace: Trace) -> MemoryMap:
    """Live blocks in their segments, with the free blocks between them."""
    place = np.searchsorted(segments.address, live.address, side="right") - 1
    inside = place >= 0
    inside[inside] = live.address[inside] < (segments.address + segments.bytes)[place[inside]]
    rows = np.flatnonzero(inside)
    segment, start = place[rows], live.address[rows]
    limit = (segments.address + segments.bytes)[segment]
    if len(rows):
        follower = np.where(segment[1:] == segment[:-1], start[1:], limit[:-1])
        limit = np.concatenate([follower, limit[-1:]])
    size = np.minimum(live.bytes[rows], limit - start)
    left = limit - start - size
    # A remainder this small is not split off (should_split).
    keeps = np.where(
        segments.is_small[segment] | segments.is_expandable[segment],
        ROUNDING_BYTES - 1,
        SMALL_BYTES,
    )
    size = size + np.where(live.is_estimated[rows] & (left <= keeps), left, 0)
    free_segment, free_start, free_size = _gaps(segments, segment, start, size)
    none = np.zeros(len(free_start), dtype=np.int64)
    blocks = Blocks(
        segment=np.concatenate([segment, free_segment]),
        address=np.concatenate([start, free_start]),
        bytes=np.concatenate([size, free_size]),
        requested=np.concatenate([np.minimum(live.requested[rows], size), none]),
        state=np.concatenate([live.state[rows], none + INACTIVE]),
        stack=np.concatenate([live.stack[rows], none - 1]),
    )
    label = np.concatenate([live.label[rows], none])
    order = np.lexsort((blocks.address, blocks.segment))
    return MemoryMap(segments, _reorder(blocks, order), label[order], trace.labels)


def _reorder(blocks: Blocks, order: Numbers) -> Blocks:
    return Blocks(
        blocks.segment[order],
        blocks.address[order],
        blocks.bytes[order],
        blocks.requested[order],
        blocks.state[order],
        blocks.stack[order],
    )


def _gaps(
    segments: Segments, segment: Numbers, start: Numbers, size: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Segment, address and size of what no live block takes; blocks come sorted by address."""
    number = np.arange(len(segments), dtype=np.int64)
    where = np.concatenate([number, segment])
    begin = np.concatenate([segments.address, start + size])
    order = np.lexsort((begin, where))
    where, begin = where[order], begin[order]
    ends = np.concatenate([start, segments.address + segments.bytes])
    end_where = np.concatenate([segment, number])
    end = ends[np.lexsort((ends, end_where))]
    found = end > begin
    return where[found], begin[found], (end - begin)[found]
