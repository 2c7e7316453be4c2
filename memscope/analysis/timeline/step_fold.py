"""Rows of a step, kept until the step has ended and then folded into one row.

A row may be written before its step begins (an upload ahead). It waits for the first step row with
its own number or a higher one. A row without a step belongs to the step that ends next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from memscope.analysis.timeline.steps import (
    COLUMN,
    COUNT_COLUMNS,
    POOL_KINDS,
    Numbers,
    Steps,
    StepTable,
)
from memscope.analysis.timeline.window import EVICTED, MAX_LAYERS, RAN, UPLOADED, Moves, Window
from memscope.events import KINDS, Kind

if TYPE_CHECKING:
    from memscope.analysis.timeline.samples import Samples
    from memscope.reader.scanner import Batch

MAX_WAITING_ROWS = 1 << 20
MAX_GEOMETRIES = 1024
MAX_BYTES = 1 << 50
MAX_NS = 1 << 62
MAX_ENTRIES = 1 << 20

# Reading → the column with its value at the step's end.
STEP_READINGS = {
    "device.allocated_bytes": "allocated_bytes",
    "device.peak_bytes": "device_peak_bytes",
    "pool.idle_bytes": "idle_bytes",
    "kv.used_bytes": "kv_bytes",
    "residency.in_flight_bytes": "in_flight_bytes",
}
_READINGS = {name: index for index, name in enumerate(STEP_READINGS)}

_MOVES = {Kind.UPLOAD: UPLOADED, Kind.LAYER: RAN, Kind.EVICT: EVICTED}


def _table(kinds: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, dtype=bool)
    table[list(kinds)] = True
    return table


_IS_OF_STEP = _table((*_MOVES, *COUNT_COLUMNS))
_IS_MOVE = _table(tuple(_MOVES))
_IS_CALL = _table((Kind.DEVICE_MALLOC, Kind.DEVICE_FREE))
_IS_POOL = _table(POOL_KINDS)
_IS_SAMPLE = _table((Kind.SAMPLE,))
_WHAT = np.zeros(256, dtype=np.int64)
for _kind, _what in _MOVES.items():
    _WHAT[_kind] = _what

# Waiting rows are an int64 matrix of shape (fields, rows).
POSITION, STEP, TIME, KIND, LAYER, NAME, BYTES, DURATION, ENTRIES = range(9)
BEFORE = -1  # the position of a row from an earlier batch
_SUMS = (
    (Kind.WAIT, DURATION, "wait_ns"),
    (Kind.UPLOAD, BYTES, "upload_bytes"),
    (Kind.UPLOAD, DURATION, "upload_duration_ns"),
    (Kind.EVICT, BYTES, "evict_bytes"),
)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Requests to the weight pool for one geometry, after warm-up."""

    name: str
    hits: int
    misses: int
    returns: int
    overflows: int


def add_geometries(
    seen: Iterable[Geometry], sums: Mapping[str, Sequence[int]]
) -> tuple[Geometry, ...]:
    """Counts from events plus counts from sums, by geometry."""
    by_name = {each.name: each for each in seen}
    for name, (hits, misses, returns, overflows) in sums.items():
        known = by_name.get(name, Geometry(name, 0, 0, 0, 0))
        by_name[name] = Geometry(
            name,
            known.hits + hits,
            known.misses + misses,
            known.returns + returns,
            known.overflows + overflows,
        )
    return tuple(by_name[name] for name in sorted(by_name))


@dataclass(frozen=True, slots=True)
class StepSettings:
    """Settings of the fold: number of warm-up steps, and the layer that is lm_head."""

    warmup_steps: int
    head: int | None


class StepFold:
    """Folds rows into steps."""

    def __init__(self) -> None:
        self.window = Window()
        self._table = StepTable()
        self._waiting: list[Numbers] = []
        self._waiting_rows = 0
        self._highest = -1
        self._geometries: dict[str, int] = {}
        self._pool_counts = np.zeros((0, len(POOL_KINDS)), dtype=np.int64)
        self.ignored_rows = 0

    @property
    def steps(self) -> Steps:
        """Steps that have ended."""
        return self._table.steps()

    @property
    def steps_ended(self) -> int:
        """Number of all step rows, including those beyond the table's bound."""
        return self._table.ended

    @property
    def geometries(self) -> tuple[Geometry, ...]:
        """Counts of the weight pool for each geometry, ordered by name."""
        counts = self._pool_counts.tolist()
        names = sorted(self._geometries.items())
        return tuple(Geometry(name, *counts[index]) for name, index in names)

    def fold(
        self, batch: Batch, samples: Samples, start: int, stop: int, settings: StepSettings
    ) -> None:
        """Fold rows ``start`` to ``stop`` of ``batch``. ``samples``: the readings in these rows."""
        rows = self._collect(batch, samples, start, stop)
        ends = np.flatnonzero(batch["kind"][start:stop] == Kind.STEP) + start
        if not len(ends):
            rows[POSITION] = BEFORE
        self._wait(rows)
        if len(ends):
            self._close(batch, ends, settings)

    def window_seen(self) -> Window:
        """The window at the end of the last step, plus uploads already begun for a later step.

        Before the first step has ended, it is the current window.
        """
        window = self.window.copy()
        if self._waiting:
            rows = np.concatenate(self._waiting, axis=1)
            rows = rows[:, _IS_MOVE[rows[KIND]]]
            if self.steps_ended:
                is_ahead = (rows[KIND] == Kind.UPLOAD) & (rows[STEP] > self._highest)
                rows = rows[:, is_ahead & (rows[TIME] <= self._table.last_end_ns)]
            step = np.maximum(rows[STEP], self._highest + 1)
            rows = rows[:, np.lexsort((rows[TIME], step))]
            which = np.arange(rows.shape[1])
            window.fold(_moves(rows, which, np.zeros_like(which)), 1, head=None)
        return window

    def _collect(self, batch: Batch, samples: Samples, start: int, stop: int) -> Numbers:
        """The rows of ``batch`` that belong to steps, as a matrix."""
        kind = batch["kind"][start:stop].view(np.uint8)
        is_of_library = _IS_CALL[kind] & (batch["device"][start:stop] >= 0)  # recorded by CUPTI
        is_wanted = _IS_OF_STEP[kind] & ~is_of_library
        named = self._names(batch, samples, start, kind)
        if named is not None:
            is_wanted |= (kind == Kind.SAMPLE) & (named >= 0)
        rows = np.flatnonzero(is_wanted)
        matrix = np.empty((9, len(rows)), dtype=np.int64)
        matrix[KIND] = kind[rows]
        matrix[NAME] = -1 if named is None else named[rows]
        rows += start
        matrix[POSITION] = rows
        for field, column in ((STEP, "step"), (TIME, "t_ns"), (LAYER, "layer")):
            matrix[field] = batch[column][rows]
        np.clip(batch["bytes"][rows], -1, MAX_BYTES, out=matrix[BYTES])
        np.clip(batch["duration_ns"][rows], -1, MAX_NS, out=matrix[DURATION])
        value = np.nan_to_num(batch["value"][rows], copy=False, nan=1.0, posinf=1.0, neginf=1.0)
        matrix[ENTRIES] = np.clip(value, 0, MAX_ENTRIES, out=value)
        return self._without_strange_layers(matrix)

    def _without_strange_layers(self, rows: Numbers) -> Numbers:
        layer = rows[LAYER]
        is_strange = _IS_MOVE[rows[KIND]] & ((layer < 0) | (layer >= MAX_LAYERS))
        if not is_strange.any():
            return rows
        self.ignored_rows += int(is_strange.sum())
        return rows[:, ~is_strange]

    def _names(
        self, batch: Batch, samples: Samples, start: int, kind: npt.NDArray[np.uint8]
    ) -> Numbers | None:
        """Index of each row's geometry or step reading; −1 if it has neither."""
        pool = np.flatnonzero(_IS_POOL[kind])
        if not (len(pool) or len(samples)):
            return None
        codes, names = batch.names
        codes = codes[start : start + len(kind)]
        numbers = np.full(len(kind), -1)
        is_outside = samples.step < 0
        numbers[samples.rows - start] = np.where(is_outside, -1, samples.number(_READINGS))
        geometry = np.full(len(names) + 1, -1)
        for code in np.flatnonzero(np.bincount(codes[pool] + 1)).tolist():
            geometry[code - 1] = self._geometry(names[code - 1] if code else "")
        numbers[pool] = geometry[codes[pool]]
        return numbers

    def _geometry(self, name: str) -> int:
        if name not in self._geometries and len(self._geometries) < MAX_GEOMETRIES:
            self._geometries[name] = len(self._geometries)
            self._pool_counts = np.pad(self._pool_counts, ((0, 1), (0, 0)))
        return self._geometries.get(name, -1)

    def _wait(self, rows: Numbers) -> None:
        """Keep ``rows`` until their steps end."""
        if not rows.shape[1]:
            return
        self._waiting.append(rows)
        self._waiting_rows += rows.shape[1]
        if self._waiting_rows > MAX_WAITING_ROWS:
            everything = np.concatenate(self._waiting, axis=1)
            kept = everything[:, -(MAX_WAITING_ROWS // 2) :].copy()
            self.ignored_rows += everything.shape[1] - kept.shape[1]
            self._waiting, self._waiting_rows = [kept], kept.shape[1]

    def _close(self, batch: Batch, ends: Numbers, settings: StepSettings) -> None:
        """Fold the rows of the steps that end at the rows ``ends`` of ``batch``."""
        numbers = batch["step"][ends]
        highest = np.maximum.accumulate(np.maximum(numbers, self._highest))
        self._highest = int(highest[-1])
        block = np.zeros((len(ends), len(COLUMN)), dtype=np.int64)
        block[:, COLUMN["step"]] = numbers
        self._set_times(block, batch, ends)
        rows = np.concatenate(self._waiting or [np.empty((9, 0), dtype=np.int64)], axis=1)
        slot = _slots(rows, ends, highest)
        left = rows[:, slot == len(ends)]
        left[POSITION] = BEFORE
        self._waiting, self._waiting_rows = [left], left.shape[1]
        closed = _Closed(rows, slot, len(ends))
        _set_counts(block, closed)
        self._count_pool(closed, settings.warmup_steps)
        self._follow_window(block, closed, settings.head)
        _set_readings(block, closed)
        self._table.append(block)

    def _set_times(self, block: Numbers, batch: Batch, ends: Numbers) -> None:
        end = np.clip(batch["t_ns"][ends], -MAX_NS, MAX_NS)
        duration = np.clip(batch["duration_ns"][ends], -1, MAX_NS)
        previous = np.concatenate(([self._table.last_end_ns], end[:-1]))
        start = np.where(duration >= 0, end - duration, np.minimum(previous, end))
        block[:, COLUMN["end_ns"]] = end
        block[:, COLUMN["start_ns"]] = start
        block[:, COLUMN["duration_ns"]] = end - start

    def _count_pool(self, closed: _Closed, warmup_steps: int) -> None:
        first = max(warmup_steps - self._table.ended, 0)
        which = closed.where(_IS_POOL)
        name = closed.rows[NAME][which]
        which = which[(name >= 0) & (closed.slot[which] >= first)]
        kind = closed.rows[KIND][which] - Kind.POOL_HIT
        key = closed.rows[NAME][which] * len(POOL_KINDS) + kind
        counts = np.bincount(key, minlength=self._pool_counts.size)
        self._pool_counts += counts.reshape(self._pool_counts.shape)

    def _follow_window(self, block: Numbers, closed: _Closed, head: int | None) -> None:
        which = closed.where(_IS_MOVE)
        which = which[np.lexsort((closed.rows[TIME][which], closed.slot[which]))]
        moves = _moves(closed.rows, which, closed.slot[which])
        occupancy = self.window.fold(moves, len(block), head=head)
        for name in occupancy.__slots__:
            block[:, COLUMN[name]] = getattr(occupancy, name)


@dataclass(frozen=True, slots=True)
class _Closed:
    """Rows and the ended step of each (``slot``), which is ``steps`` if it has not ended."""

    rows: Numbers
    slot: Numbers
    steps: int

    def where(self, is_kind: npt.NDArray[np.bool_]) -> Numbers:
        """Indices of the rows of these kinds that belong to an ended step."""
        return np.flatnonzero(is_kind[self.rows[KIND]] & (self.slot < self.steps))

    def sum(self, field: int, which: Numbers) -> Numbers:
        """The sum of a field for each step."""
        weights = self.rows[field][which]
        sums = np.bincount(self.slot[which], weights, minlength=self.steps)
        return np.minimum(sums, MAX_NS).astype(np.int64)


def _slots(rows: Numbers, ends: Numbers, highest: Numbers) -> Numbers:
    """The step end of each row: the first one after it that reaches the row's step number."""
    before = np.searchsorted(rows[POSITION], ends)
    counts = np.diff(before, prepend=0, append=rows.shape[1])
    slot = np.repeat(np.arange(len(ends) + 1), counts)
    reached = np.append(highest, np.iinfo(np.int64).max)
    ahead = np.flatnonzero(rows[STEP] > reached[slot])
    slot[ahead] = np.searchsorted(highest, rows[STEP][ahead])
    return slot


def _moves(rows: Numbers, which: Numbers, slot: Numbers) -> Moves:
    return Moves(
        slot=slot,
        layer=rows[LAYER][which],
        what=_WHAT[rows[KIND][which]],
        entries=rows[ENTRIES][which],
        bytes=np.maximum(rows[BYTES][which], 0),
    )


def _set_counts(block: Numbers, closed: _Closed) -> None:
    """Set the number of rows of each kind, and the sums of their fields."""
    kinds = len(KINDS)
    key = closed.slot * kinds + closed.rows[KIND]
    counts = np.bincount(key, minlength=(closed.steps + 1) * kinds).reshape(-1, kinds)[:-1]
    for kind, column in COUNT_COLUMNS.items():
        block[:, COLUMN[column]] = counts[:, kind]
    for kind, field, column in _SUMS:
        which = closed.where(_table((kind,)))
        which = which[closed.rows[field][which] >= 0]
        block[:, COLUMN[column]] = closed.sum(field, which)
        if kind == Kind.UPLOAD and field == DURATION:
            timed = np.bincount(closed.slot[which], minlength=closed.steps)
            block[timed < counts[:, kind], COLUMN[column]] = -1


def _set_readings(block: Numbers, closed: _Closed) -> None:
    """Set the last reading of each name in its step; −1 if there is none."""
    which = closed.where(_IS_SAMPLE)
    slot, reading_name = closed.slot[which], closed.rows[NAME][which]
    size = closed.rows[BYTES][which]
    for index, column in enumerate(STEP_READINGS.values()):
        if column != "in_flight_bytes":  # without a reading, the window gives it
            block[:, COLUMN[column]] = -1
        is_reading = (reading_name == index) & (size >= 0)
        block[slot[is_reading], COLUMN[column]] = size[is_reading]
