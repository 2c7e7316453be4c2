"""Allocated bytes after each event of a trace, counted backwards from the dumped map.

Backwards, since the first events of a full trace are lost while the map at its end is whole.
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
    """``allocated``: bytes before the first event, then after each one. Freed ones as rounded."""

    allocated: Numbers
    first_known: int = 0

    @property
    def peak_bytes(self) -> int:
        """The most that was allocated within the trace."""
        return int(self.allocated.max())

    @property
    def peak_event(self) -> int:
        """Events up to the first moment at which the peak stood."""
        return int(self.allocated.argmax())


def replay(trace: Trace, end: MemoryMap) -> Replay:
    """Allocated bytes over the trace that ends in ``end``."""
    size = round_size(trace.bytes)
    size = _with_known_sizes(trace, end, size)
    change = np.where(trace.action == ALLOC, size, 0)
    change -= np.where(trace.action == FREE_REQUESTED, size, 0)
    after = np.concatenate([[0], np.cumsum(change)])
    return Replay(np.maximum(after - after[-1] + end.bytes_in(ALLOCATED), 0))


def _with_known_sizes(trace: Trace, end: MemoryMap, size: Numbers) -> Numbers:
    """Sizes of blocks that still live are known from the map."""
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
