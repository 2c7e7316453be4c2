"""Segments and blocks of one device at an earlier moment of the trace.

Later events are undone: the first event of an address after the moment tells what was there.
Splitting follows CUDACachingAllocator.cpp, should_split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memscope.analysis.memory_map.memory_map import (
    LARGE_PAGE_BYTES,
    ROUNDING_BYTES,
    SMALL_BYTES,
    SMALL_SEGMENT_BYTES,
    MemoryMap,
    last_allocations,
    round_size,
)
from memscope.interop.snapshot.snapshot import ALLOCATED, INACTIVE, PENDING, Blocks, Segments
from memscope.interop.snapshot.tables import join, take
from memscope.interop.snapshot.trace import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Trace,
)

Numbers = npt.NDArray[np.int64]


def map_before(end: MemoryMap, trace: Trace, event: int) -> MemoryMap:
    """The map just before event number ``event``, with later events undone.

    A block freed since then gets its rounded request size, which may be less than its real
    size.
    """
    if event >= len(trace) or not (trace.action[event:] <= SEGMENT_UNMAP).any():
        return end
    segments = _segments_before(end.segments, trace, event)
    return _lay_out(segments, _live_before(end, trace, event), trace)


@dataclass(frozen=True, slots=True)
class _Live:
    """Live blocks at a moment, by address. ``event``: their last alloc event, −1 if unknown."""

    address: Numbers
    bytes: Numbers
    requested: Numbers
    state: Numbers
    stack: Numbers
    label: Numbers
    is_estimated: npt.NDArray[np.bool_]


def _first_after(trace: Trace, event: int, *actions: int) -> Numbers:
    """Row of the first such event of each address, from ``event`` on."""
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
    whole = take(end, ~end.is_expandable & ~np.isin(end.address, came))
    gone = first[trace.action[first] == SEGMENT_FREE]
    gone = gone[~np.isin(trace.address[gone], whole.address)]
    parts = [whole, _from_events(trace, gone), _mapped_before(end, trace, event)]
    joined = join(parts)
    order = np.argsort(joined.address, kind="stable")
    start, stop = joined.address[order], (joined.address + joined.bytes)[order]
    free_of_others = np.concatenate([[True], start[1:] >= np.maximum.accumulate(stop)[:-1]])
    return take(joined, order[free_of_others[: len(order)]])


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
    """Mapped ranges of expandable segments before the event: later mapping is undone."""
    ours = take(end, end.is_expandable)
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
    """Stream, pool and size class of each range, from the segment or event that contains it."""
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
    """Live blocks in their segments, with free blocks between them."""
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
    return MemoryMap(segments, take(blocks, order), label[order], trace.labels)


def _gaps(
    segments: Segments, segment: Numbers, start: Numbers, size: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Segment, address and size of each gap between live blocks. Blocks are sorted by address."""
    number = np.arange(len(segments), dtype=np.int64)
    where = np.concatenate([number, segment])
    begin = np.concatenate([segments.address, start + size])
    order = np.lexsort((begin, where))
    where, begin = where[order], begin[order]
    ends = np.concatenate([start, segments.address + segments.bytes])
    end_where = np.concatenate([segment, number])
    end = ends[np.lexsort((ends, end_where))]
    is_gap = end > begin
    return where[is_gap], begin[is_gap], (end - begin)[is_gap]
