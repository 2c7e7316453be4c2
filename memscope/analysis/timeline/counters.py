"""Torch's counters on each device, folded for the allocator metrics.

Readings of the same moment are paired as they arrive, so a difference is always between two
readings of one moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from memscope.analysis.timeline.readings import MAX_BYTES, Held, own_calls
from memscope.analysis.timeline.series import Series, SeriesBuilder
from memscope.events import Kind

if TYPE_CHECKING:
    from memscope.analysis.timeline.samples import Samples
    from memscope.analysis.timeline.sums import Sums
    from memscope.reader.scanner import Batch

Numbers = npt.NDArray[np.int64]

ALLOCATED, RESERVED, PROCESS, KV, REQUESTED = range(5)
_READINGS = {
    "torch.allocated_bytes": ALLOCATED,
    "torch.reserved_bytes": RESERVED,
    "nvml.process_bytes": PROCESS,
    "model.kv_bytes": KV,
    "torch.requested_bytes": REQUESTED,
}
PAIR_NS = 20_000_000  # readings further apart are not from one moment
SWING_READINGS = 4  # fewest readings of a step with a swing
MAX_DEVICES = 64
SERIES = ("floor", "gap", "outside", "unused", "cache_ratio", "rounding_ratio", "swing_ratio")
TYPICAL = ("unused", "cache_ratio", "rounding_ratio")  # series used for a median


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """Series of one device over time; None if nothing was read.

    ``floor``: allocated bytes without known KV. ``gap``: reserved − allocated. ``outside``:
    bytes of the process that neither torch reserved nor a recorded driver call took. ``unused``
    and ``cache_ratio``: the gap, and gap / reserved, without readings at a step's end, when
    little is in use. ``rounding_ratio``: (allocated − requested) / allocated. ``swing_ratio``:
    (most − least allocated within a step) / most.
    """

    floor: Series | None
    gap: Series | None
    outside: Series | None
    unused: Series | None
    cache_ratio: Series | None
    rounding_ratio: Series | None
    swing_ratio: Series | None


class CounterFold:
    """Folds batches into the counters of each device."""

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}
        self._raw_bytes = 0

    def restart(self, held: Held) -> None:
        """Continue from the bytes that driver calls held when a segment began."""
        self._raw_bytes = sum(size for size, _ in held.values())

    def add(self, batch: Batch, samples: Samples, sums: Sums) -> None:
        """Fold one batch and its readings."""
        number = samples.number(_READINGS)
        is_wanted = (number >= 0) & (samples.bytes >= 0)
        number, samples = number[is_wanted], samples.where(is_wanted)
        ends = batch.where(Kind.STEP)
        raw = self._follow_raw(batch, sums, samples.rows)
        is_step_end = (samples.step >= 0) & (samples.layer < 0)
        for device in np.unique(samples.device).tolist():
            if device not in self._streams and len(self._streams) < MAX_DEVICES:
                self._streams[device] = _Stream()
        values = np.minimum(samples.bytes, MAX_BYTES)
        for device, stream in self._streams.items():
            mine = np.flatnonzero(samples.device == device)
            stream.is_thinned = batch.is_thinned
            stream.add(samples.t_ns[mine], number[mine], values[mine], raw[mine], is_step_end[mine])
            if batch.is_thinned:
                continue
            levels = mine[number[mine] == ALLOCATED]
            stream.swing.add(samples.rows[levels], values[levels], ends, batch["t_ns"][ends])

    @property
    def devices(self) -> dict[int, DeviceCounters]:
        """Device → its counters. Readings without a device (−1) belong to the first one."""
        found = {}
        for device, stream in sorted(self._streams.items()):
            counters = stream.counters()
            if counters.floor is not None:
                found[max(device, 0)] = counters
        return found

    def _follow_raw(self, batch: Batch, sums: Sums, rows: Numbers) -> Numbers:
        """Bytes held by driver calls at each of ``rows``."""
        calls, changes, _ = own_calls(batch, sums)
        level = np.concatenate(([self._raw_bytes], self._raw_bytes + np.cumsum(changes)))
        self._raw_bytes = int(level[-1])
        return np.asarray(level[np.searchsorted(calls, rows)])


class _Stream:
    """Readings of one device."""

    def __init__(self) -> None:
        self._last_ns = np.full(len(_READINGS), -(1 << 62), dtype=np.int64)
        self._last = np.zeros(len(_READINGS), dtype=np.int64)
        self._second = -1  # the later one of allocated and reserved
        self._builders = {name: SeriesBuilder() for name in SERIES[:-1]}
        self.swing = _Swing()
        self.is_thinned = False  # only the highest and lowest readings are left

    def add(
        self,
        times: Numbers,
        reading_name: Numbers,
        values: Numbers,
        raw: Numbers,
        is_step_end: npt.NDArray[np.bool_],
    ) -> None:
        if not len(times):
            return
        filled_ns, filled = self._fill(times, reading_name, values)
        if self._second < 0:
            pair = reading_name[(reading_name == ALLOCATED) | (reading_name == RESERVED)]
            self._second = ALLOCATED + RESERVED - int(pair[0]) if len(pair) else -1
        apart = np.abs(filled_ns[ALLOCATED] - filled_ns[RESERVED])
        at = np.flatnonzero((reading_name == self._second) & (apart <= PAIR_NS))
        self._keep_pairs(times[at], filled[:, at], is_step_end[at])
        apart = np.abs(filled_ns[PROCESS] - filled_ns[RESERVED])
        at = np.flatnonzero((reading_name == PROCESS) & (apart <= 10 * PAIR_NS))
        self._keep("outside", times[at], filled[PROCESS, at] - filled[RESERVED, at] - raw[at])
        apart = np.abs(filled_ns[REQUESTED] - filled_ns[ALLOCATED])
        at = np.flatnonzero(
            (reading_name == REQUESTED) & (apart <= PAIR_NS) & (filled[ALLOCATED] > 0)
        )
        self._keep("rounding_ratio", times[at], 1 - filled[REQUESTED, at] / filled[ALLOCATED, at])

    def counters(self) -> DeviceCounters:
        series = {name: builder.series() for name, builder in self._builders.items()}
        series["swing_ratio"] = self.swing.series()
        return DeviceCounters(
            **{name: each if len(each) else None for name, each in series.items()}
        )

    def _fill(
        self, times: Numbers, reading_name: Numbers, values: Numbers
    ) -> tuple[Numbers, Numbers]:
        """The last time and value of every name at each reading: (names, readings)."""
        count = len(_READINGS)
        times, values = np.append(self._last_ns, times), np.append(self._last, values)
        is_name = np.append(np.arange(count), reading_name) == np.arange(count)[:, None]
        index = np.maximum.accumulate(np.where(is_name, np.arange(len(times)), -1), axis=1)
        filled_ns, filled = times[index[:, count:]], values[index[:, count:]]
        self._last_ns, self._last = filled_ns[:, -1].copy(), filled[:, -1].copy()
        return filled_ns, filled

    def _keep_pairs(
        self, times: Numbers, filled: Numbers, is_step_end: npt.NDArray[np.bool_]
    ) -> None:
        gap = filled[RESERVED] - filled[ALLOCATED]
        self._keep("floor", times, filled[ALLOCATED] - filled[KV])
        self._keep("gap", times, gap)
        inside = ~is_step_end & (filled[RESERVED] > 0)
        self._keep("unused", times[inside], gap[inside])
        self._keep("cache_ratio", times[inside], gap[inside] / filled[RESERVED, inside])

    def _keep(self, name: str, times: Numbers, values: npt.NDArray[np.float64] | Numbers) -> None:
        if len(times) and not (self.is_thinned and name in TYPICAL):
            self._builders[name].add(times, values.astype(np.float64))


class _Swing:
    """Most and least allocated bytes of each step, in the order of the file."""

    def __init__(self) -> None:
        self._builder = SeriesBuilder()
        self._least, self._most, self._readings = np.inf, -np.inf, 0

    def series(self) -> Series:
        return self._builder.series()

    def add(self, rows: Numbers, values: Numbers, ends: Numbers, ends_ns: Numbers) -> None:
        """Readings in ``rows``; steps end at the rows ``ends``."""
        slots = len(ends) + 1
        slot = np.searchsorted(ends, rows)
        least, most = np.full(slots, np.inf), np.full(slots, -np.inf)
        np.minimum.at(least, slot, values)
        np.maximum.at(most, slot, values)
        readings = np.bincount(slot, minlength=slots)
        least[0], most[0] = min(least[0], self._least), max(most[0], self._most)
        readings[0] += self._readings
        self._least, self._most, self._readings = least[-1], most[-1], int(readings[-1])
        known = np.flatnonzero((readings[:-1] >= SWING_READINGS) & (most[:-1] > 0))
        if len(known):
            self._builder.add(ends_ns[known], 1 - least[known] / most[known])
