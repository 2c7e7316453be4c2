"""Readings by name and device, with their peak, end and percentiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from memscope.analysis.timeline.series import Series, SeriesBuilder
from memscope.analysis.timeline.sketch import Sketch
from memscope.events import Kind

if TYPE_CHECKING:
    from memscope.analysis.timeline.samples import Samples
    from memscope.reader.scanner import Batch

MAX_SERIES = 512  # times devices
MAX_WAITING = 1 << 18
DEVICES = 1 << 16

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DeviceReadings:
    """Readings of one name on one device. ``inside``: readings within steps after warm-up.

    If there are no steps, ``inside`` has all readings.
    """

    series: Series
    inside: Sketch


class ReadingFold:
    """Folds batches into readings. The result does not depend on how rows are batched.

    A reading waits until the next step ends. It is inside that step if it was taken after the
    step began. If a step has more than ``MAX_WAITING`` readings, the first ones do not count as
    inside.
    """

    def __init__(self) -> None:
        self._builders: dict[tuple[str, int], _Builder] = {}
        self._order: list[_Builder] = []
        self._ended = 0
        self._last_end_ns = 0
        none = np.empty(0, dtype=np.int64)
        self._waiting = _Rows(none, none, np.empty(0))

    def of(self, reading_name: str) -> dict[int, DeviceReadings]:
        """Device (−1 for none) → its readings of this name, ordered by device."""
        return {
            device: DeviceReadings(
                builder.series.series(), builder.inside if self._ended else builder.all
            )
            for (name, device), builder in sorted(self._builders.items())
            if name == reading_name
        }

    def fold(
        self, batch: Batch, samples: Samples, start: int, stop: int, warmup_steps: int
    ) -> None:
        """Fold rows ``start`` to ``stop`` of ``batch``. ``samples``: the readings in these rows."""
        rows, taken = self._take(samples.where(samples.is_reading))
        if batch.is_thinned:  # only the highest and lowest readings are left
            rows, taken = rows[:0], taken.where(slice(0, 0))
        if not self._ended:
            for builder, values in self._by_reading(taken.which, taken.values):
                builder.all.add(values)
        ends = np.flatnonzero(batch["kind"][start:stop] == Kind.STEP) + start
        slot = np.append(
            np.zeros(len(self._waiting.which), dtype=np.int64), np.searchsorted(ends, rows)
        )
        waiting = self._waiting.followed_by(taken)
        if len(ends):
            begins = self._begins(batch, ends)
            is_closed = slot < len(ends)
            is_inside = is_closed & (self._ended + slot >= warmup_steps)
            is_inside[is_inside] &= waiting.t_ns[is_inside] >= begins[slot[is_inside]]
            for builder, values in self._by_reading(
                waiting.which[is_inside], waiting.values[is_inside]
            ):
                builder.inside.add(values)
            self._ended += len(ends)
            waiting = waiting.where(~is_closed)
        if len(waiting.which) > MAX_WAITING:
            waiting = waiting.where(slice(-MAX_WAITING // 2, None))
        self._waiting = waiting

    def _take(self, samples: Samples) -> tuple[Numbers, _Rows]:
        """Add readings to their series; returns their rows and values."""
        which = self._which(samples)
        is_kept = which >= 0
        samples, which = samples.where(is_kept), which[is_kept]
        order = np.argsort(which, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(which[order])) + 1) if len(order) else []
        for part in parts:
            series = self._order[which[part[0]]].series
            series.add(samples.t_ns[part], samples.values[part])
        return samples.rows, _Rows(which, samples.t_ns, samples.values)

    def _which(self, samples: Samples) -> Numbers:
        """Index of each reading's name and device; −1 if there are too many."""
        keys = samples.codes.astype(np.int64) * DEVICES + np.maximum(samples.device, -1) + 1
        distinct, which = np.unique(keys, return_inverse=True)
        numbers = [
            self._number(samples.names[key // DEVICES], key % DEVICES - 1)
            for key in distinct.tolist()
        ]
        return np.array(numbers, dtype=np.int64)[which.reshape(-1)]

    def _number(self, reading_name: str, device: int) -> int:
        builder = self._builders.get((reading_name, device))
        if builder is None:
            if len(self._order) >= MAX_SERIES:
                return -1
            builder = self._builders[reading_name, device] = _Builder(len(self._order))
            self._order.append(builder)
        return builder.number

    def _by_reading(self, which: Numbers, values: Floats) -> list[tuple[_Builder, Floats]]:
        order = np.argsort(which, kind="stable")
        which, values = which[order], values[order]
        starts = np.flatnonzero(np.diff(which, prepend=-1))
        parts = np.split(values, starts[1:]) if len(starts) else []
        return [
            (self._order[which[start]], part) for start, part in zip(starts, parts, strict=True)
        ]

    def _begins(self, batch: Batch, ends: Numbers) -> Numbers:
        """Start of each step: from its duration, or else the end of the step before."""
        end, duration = batch["t_ns"][ends], batch["duration_ns"][ends]
        previous = np.append(self._last_end_ns, end[:-1])
        self._last_end_ns = int(end[-1])
        return np.asarray(np.where(duration >= 0, end - duration, np.minimum(previous, end)))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Readings: name and device (``which``), time and value."""

    which: Numbers
    t_ns: Numbers
    values: Floats

    def followed_by(self, other: _Rows) -> _Rows:
        return _Rows(
            np.append(self.which, other.which),
            np.append(self.t_ns, other.t_ns),
            np.append(self.values, other.values),
        )

    def where(self, chosen: npt.NDArray[np.bool_] | slice) -> _Rows:
        return _Rows(self.which[chosen], self.t_ns[chosen], self.values[chosen])


class _Builder:
    """The data kept for one reading on one device."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.series = SeriesBuilder()
        self.inside = Sketch()
        self.all = Sketch()
