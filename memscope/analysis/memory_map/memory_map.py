"""Segments and blocks of one device, as a snapshot dumped them.

Sizes follow CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from memscope.interop.snapshot.snapshot import INACTIVE, Blocks, Segments, Snapshot
from memscope.interop.snapshot.tables import take
from memscope.interop.snapshot.trace import ALLOC, Trace

Numbers = npt.NDArray[np.int64]

ROUNDING_BYTES = 512
SMALL_BYTES = 1 << 20  # requests up to this size use small segments
SMALL_SEGMENT_BYTES = 2 << 20
LARGE_PAGE_BYTES = 20 << 20  # page of large expandable segments; small ones have 2 MiB


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """Segments and blocks of one device. ``blocks.segment`` are rows of ``segments``.

    ``label``: an index into ``labels`` for each block, the user's own metadata; 0 is none.
    """

    segments: Segments
    blocks: Blocks
    label: Numbers
    labels: tuple[str, ...]

    @property
    def reserved_bytes(self) -> int:
        """Bytes reserved from the driver."""
        return int(self.segments.bytes.sum())

    @property
    def is_live(self) -> npt.NDArray[np.bool_]:
        """Which blocks are not free: allocated, or freed and still used by another stream."""
        is_live: npt.NDArray[np.bool_] = self.blocks.state != INACTIVE
        return is_live

    def bytes_in(self, *states: int) -> int:
        """Bytes of the blocks in these states."""
        return int(self.blocks.bytes[np.isin(self.blocks.state, states)].sum())

    @property
    def stream(self) -> Numbers:
        """Stream of each block."""
        return self.segments.stream[self.blocks.segment]

    @property
    def pool(self) -> Numbers:
        """Memory pool of each block, an index into ``Snapshot.pools``."""
        return self.segments.pool[self.blocks.segment]


def round_size(requested: Numbers) -> Numbers:
    """Size of the block that a request of this many bytes takes."""
    whole = -(-requested // ROUNDING_BYTES) * ROUNDING_BYTES
    return np.maximum(whole, ROUNDING_BYTES)


def map_at_end(snapshot: Snapshot, device: int) -> MemoryMap:
    """The map as it was when the snapshot was dumped."""
    is_ours = snapshot.segments.device == device
    rows = np.cumsum(is_ours) - 1
    blocks = take(snapshot.blocks, is_ours[snapshot.blocks.segment])
    blocks = replace(blocks, segment=rows[blocks.segment])
    segments = take(snapshot.segments, is_ours)
    trace = snapshot.traces.get(device)
    if trace is None:
        return MemoryMap(segments, blocks, np.zeros(len(blocks), dtype=np.int64), ("",))
    made = last_allocations(trace, len(trace), blocks.address)
    made = np.where(blocks.state == INACTIVE, -1, made)
    stack = np.where((blocks.stack < 0) & (made >= 0), trace.stack[made], blocks.stack)
    stack = np.where(blocks.state == INACTIVE, -1, stack)
    label = np.where(made >= 0, trace.label[made], 0)
    return MemoryMap(segments, replace(blocks, stack=stack), label, trace.labels)


def last_allocations(trace: Trace, before: int, addresses: Numbers) -> Numbers:
    """Row of the last alloc event of each address before row ``before``; −1 if none."""
    rows = trace.where(ALLOC)
    rows = rows[rows < before][::-1]
    known, first = np.unique(trace.address[rows], return_index=True)
    return look_up(known, rows[first], addresses)


def look_up(known: Numbers, values: Numbers, wanted: Numbers) -> Numbers:
    """For each of ``wanted`` the value at its key in the sorted ``known``; −1 if it is missing."""
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, values[place], -1)
