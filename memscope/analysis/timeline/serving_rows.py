"""Requests lost for lack of memory, and KV blocks held, in a serving program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from memscope.analysis.timeline.series import Series, SeriesBuilder
from memscope.events import Kind

if TYPE_CHECKING:
    from memscope.analysis.timeline.samples import Samples
    from memscope.reader.scanner import Batch

MAX_LOST = 1 << 20
MEMORY = "memory"  # the reason of a request that was rejected or ended for lack of memory
HELD, UNUSED = "kv.held_blocks", "kv.unused_slots"

Numbers = npt.NDArray[np.int64]


class ServingRows:
    """Folds batches into lost requests and KV blocks.

    A request is lost if an ``oom`` row of scope "request" names it, or if a ``request_reject``
    or ``request_finish`` row has the reason "memory". Each request counts once.
    ``held_blocks``: blocks allocated minus blocks freed. ``unused``: each reading of
    ``kv.unused_slots`` / blocks held at that time.
    """

    def __init__(self) -> None:
        self._lost: set[int] = set()
        self._lost_nameless = 0
        self.held_blocks = 0
        self.peak_blocks = 0
        self._held_reading = 0.0
        self._unused = SeriesBuilder()

    @property
    def lost_requests(self) -> int:
        """Number of requests lost for lack of memory."""
        return len(self._lost) + self._lost_nameless

    @property
    def unused(self) -> Series:
        """Unused slots per held block, over time."""
        return self._unused.series()

    def add(self, batch: Batch, samples: Samples) -> None:
        """Fold one batch and its readings."""
        kind = batch["kind"]
        self._follow_blocks(batch, kind)
        self._pair_readings(samples)
        ends = (kind == Kind.OOM) | (kind == Kind.REQUEST_REJECT)
        for row in np.flatnonzero(ends | (kind == Kind.REQUEST_FINISH)).tolist():
            data = batch.data(row)
            word = "scope" if kind[row] == Kind.OOM else "reason"
            said = data.get(word) if isinstance(data, dict) else None
            if said == ("request" if kind[row] == Kind.OOM else MEMORY):
                self._lose(int(batch["request"][row]))

    def _lose(self, request: int) -> None:
        if request < 0 or len(self._lost) >= MAX_LOST:
            self._lost_nameless += 1
        else:
            self._lost.add(request)

    def _follow_blocks(self, batch: Batch, kind: npt.NDArray[np.int8]) -> None:
        is_taken = kind == Kind.KV_BLOCK_ALLOC
        rows = np.flatnonzero(is_taken | (kind == Kind.KV_BLOCK_FREE))
        if not len(rows):
            return
        value = np.nan_to_num(batch["value"][rows], nan=1.0, posinf=1.0, neginf=1.0)
        blocks = np.clip(value, 0, 1 << 32).astype(np.int64)
        level = self.held_blocks + np.cumsum(np.where(is_taken[rows], blocks, -blocks))
        self.held_blocks = int(level[-1])
        self.peak_blocks = max(self.peak_blocks, int(level.max()))

    def _pair_readings(self, samples: Samples) -> None:
        if UNUSED not in samples.names and HELD not in samples.names:
            return
        number = samples.number({HELD: 0, UNUSED: 1})
        is_wanted = (number >= 0) & (samples.bytes < 0) & np.isfinite(samples.values)
        samples, is_held = samples.where(is_wanted), number[is_wanted] == 0
        if not len(samples):
            return
        last = np.maximum.accumulate(np.where(is_held, np.arange(len(samples)), -1))
        held = np.where(last >= 0, samples.values[last], self._held_reading)
        known = np.flatnonzero(~is_held & (held > 0))
        if len(known):
            self._unused.add(samples.t_ns[known], samples.values[known] / held[known])
        self._held_reading = float(held[-1])
