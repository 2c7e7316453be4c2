"""Allocated bytes after each event of a trace, counted back from the dumped map.

It counts backwards because a full trace has lost its first events, while the map at its end is
complete.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memscope.analysis.memory_map.memory_map import MemoryMap, round_size
from memscope.interop.snapshot.snapshot import ALLOCATED
from memscope.interop.snapshot.trace import ALLOC, FREE_REQUESTED, Trace

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Replay:
    """``allocated``: bytes before the first event, then after each one. Freed sizes are rounded."""

    allocated: Numbers
    first_known: int = 0

    @property
    def peak_bytes(self) -> int:
        """The most bytes allocated within the trace."""
        return int(self.allocated.max())

    @property
    def peak_event(self) -> int:
        """Number of events up to the first moment of the peak."""
        return int(self.allocated.argmax())


def replay(trace: Trace, end: MemoryMap) -> Replay:
    """Allocated bytes over a trace whose end is the map ``end``."""
    size = round_size(trace.bytes)
    size = _with_known_sizes(trace, end, size)
    change = np.where(trace.action == ALLOC, size, 0)
    change -= np.where(trace.action == FREE_REQUESTED, size, 0)
    after = np.concatenate([[0], np.cumsum(change)])
    return Replay(np.maximum(after - after[-1] + end.bytes_in(ALLOCATED), 0))


def _with_known_sizes(trace: Trace, end: MemoryMap, size: Numbers) -> Numbers:
    """Sizes with those of blocks that are still live taken from the map."""
    rows = trace.where(ALLOC)[::-1]
    known, first = np.unique(trace.address[rows], return_index=True)
    rows = rows[first]
    order = np.argsort(end.blocks.address)
    place = np.searchsorted(end.blocks.address[order], known)
    place = order[np.minimum(place, len(order) - 1)] if len(order) else place[:0]
    if len(place):
        alive = (end.blocks.address[place] == known) & (end.blocks.state[place] == ALLOCATED)
        size = size.copy()
        size[rows[alive]] = end.blocks.bytes[place[alive]]
    return size
