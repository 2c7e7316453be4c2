"""Free memory inside segments: how much, in which blocks, and how much can be given back.

The allocator keeps free blocks apart by pool, stream and size class: free memory in one bucket
cannot serve requests of another. External fragmentation is 1 − largest free block / free bytes.
Internal fragmentation is (allocated − requested) / allocated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memscope.analysis.memory_map.memory_map import (
    LARGE_PAGE_BYTES,
    SMALL_SEGMENT_BYTES,
    MemoryMap,
)
from memscope.interop.snapshot.snapshot import ALLOCATED, INACTIVE, PENDING

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bucket:
    """The blocks of one pool, one stream and one size class.

    ``releasable_bytes``: free bytes that can go back to the driver (whole segments, or whole
    pages of expandable ones); 0 for a private pool. Live blocks pin the rest of ``free_bytes``.
    ``largest_with_pending_bytes``: the largest free block if all pending frees were done.
    """

    pool: int
    stream: int
    is_small: bool
    segments: int
    reserved_bytes: int
    allocated_bytes: int
    requested_bytes: int
    pending_bytes: int
    free_bytes: int
    releasable_bytes: int
    largest_free_bytes: int
    largest_with_pending_bytes: int

    @property
    def pinned_bytes(self) -> int:
        """Free bytes in segments or pages that live blocks hold."""
        return self.free_bytes - self.releasable_bytes

    @property
    def is_private(self) -> bool:
        """Whether the bucket belongs to a CUDA graph or a MemPool."""
        return self.pool != 0

    @property
    def external(self) -> float | None:
        """1 − largest free block / free bytes; None if nothing is free."""
        return external_fragmentation(self.largest_free_bytes, self.free_bytes)

    @property
    def internal(self) -> float | None:
        """(allocated − requested) / allocated; None if nothing is allocated."""
        return internal_fragmentation(self.allocated_bytes, self.requested_bytes)


def external_fragmentation(largest: int, free: int) -> float | None:
    """1 − largest free block / free bytes inside segments; None if nothing is free."""
    return 1 - largest / free if free else None


def internal_fragmentation(allocated: int, requested: int) -> float | None:
    """(allocated − requested) / allocated; None if nothing is allocated."""
    return (allocated - requested) / allocated if allocated else None


def buckets(memory: MemoryMap) -> tuple[Bucket, ...]:
    """Every bucket that has a segment, the largest first."""
    segments = memory.segments
    if not len(segments):
        return ()
    keys = np.stack([segments.pool, segments.stream, segments.is_small.astype(np.int64)], axis=1)
    distinct, row = np.unique(keys, axis=0, return_inverse=True)
    of_segment = row.reshape(-1)
    of_block = of_segment[memory.blocks.segment]
    size, state = memory.blocks.bytes, memory.blocks.state
    is_free, is_allocated = state == INACTIVE, state == ALLOCATED
    count = len(distinct)
    sums = {
        "segments": _sum(of_segment, np.ones(len(segments), dtype=np.int64), count),
        "reserved_bytes": _sum(of_segment, segments.bytes, count),
        "allocated_bytes": _sum(of_block, np.where(is_allocated, size, 0), count),
        "requested_bytes": _sum(
            of_block, np.where(is_allocated, memory.blocks.requested, 0), count
        ),
        "pending_bytes": _sum(of_block, np.where(state == PENDING, size, 0), count),
        "free_bytes": _sum(of_block, np.where(is_free, size, 0), count),
        "releasable_bytes": _sum(of_block, releasable_bytes(memory), count),
        "largest_free_bytes": _most(of_block, np.where(is_free, size, 0), count),
        "largest_with_pending_bytes": _most(of_block, _runs(memory), count),
    }
    found = [
        Bucket(
            int(pool),
            int(stream),
            bool(is_small),
            **{name: int(column[number]) for name, column in sums.items()},
        )
        for number, (pool, stream, is_small) in enumerate(distinct)
    ]
    return tuple(sorted(found, key=lambda bucket: -bucket.reserved_bytes))


def releasable_bytes(memory: MemoryMap) -> Numbers:
    """Bytes of each block that could go back to the driver."""
    segments, blocks = memory.segments, memory.blocks
    is_free = blocks.state == INACTIVE
    whole = is_free & (blocks.bytes == segments.bytes[blocks.segment])
    page = np.where(segments.is_small, SMALL_SEGMENT_BYTES, LARGE_PAGE_BYTES)[blocks.segment]
    start = blocks.address - segments.address[blocks.segment]
    pages = (start + blocks.bytes) // page - -(-start // page)
    in_pages = np.where(is_free, np.maximum(pages, 0) * page, 0)
    in_pages = np.minimum(in_pages, blocks.bytes)
    is_expandable = segments.is_expandable[blocks.segment]
    releasable = np.where(is_expandable, in_pages, np.where(whole, blocks.bytes, 0))
    return np.where(memory.pool == 0, releasable, 0)


def _runs(memory: MemoryMap) -> Numbers:
    """Bytes of each run of free or pending blocks, at its first block; 0 elsewhere."""
    blocks = memory.blocks
    is_open = blocks.state != ALLOCATED
    starts = is_open.copy()
    starts[1:] &= ~(is_open[:-1] & (blocks.segment[1:] == blocks.segment[:-1]))
    number = np.cumsum(starts) - 1
    run_bytes = np.zeros(len(blocks), dtype=np.int64)
    first = np.flatnonzero(starts)
    np.add.at(run_bytes, first[number[is_open]], blocks.bytes[is_open])
    return run_bytes


def _sum(groups: Numbers, values: Numbers, count: int) -> Numbers:
    found = np.zeros(count, dtype=np.int64)
    np.add.at(found, groups, values)
    return found


def _most(groups: Numbers, values: Numbers, count: int) -> Numbers:
    found = np.zeros(count, dtype=np.int64)
    np.maximum.at(found, groups, values)
    return found
