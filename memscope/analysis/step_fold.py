"""Rows that belong to a step, kept until the step has ended and then folded into one row.

A row may be written before its step begins (an upload ahead), so that it waits for the first step
row at or beyond its own number. A row without a step belongs to the step that ends next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from memscope import events
from memscope.analysis.steps import COLUMN, Numbers, Steps, StepTable
from memscope.analysis.window import EVICTED, MAX_LAYERS, RAN, UPLOADED, Moves, Window

if TYPE_CHECKING:
    from memscope.storage import Batch

MAX_WAITING_ROWS = 1 << 20
MAX_GEOMETRIES = 1024
MAX_BYTES = 1 << 50
MAX_NS = 1 << 62
MAX_ENTRIES = 1 << 20

# The reading of a metric at a step's end → the column that keeps it.
STEP_METRICS = {
    "device.allocated_bytes": "allocated_bytes",
    "device.peak_bytes": "device_peak_bytes",
    "pool.idle_bytes": "idle_bytes",
    "kv.used_bytes": "kv_bytes",
    "residency.in_flight_bytes": "in_flight_bytes",
}
_METRICS = {name: index for index, name in enumerate(STEP_METRICS)}

_POOL = (events.POOL_HIT, events.POOL_MISS, events.POOL_RETURN, events.POOL_OVERFLOW)
_MOVES = {events.UPLOAD: UPLOADED, events.LAYER: RAN, events.EVICT: EVICTED}
_COUNTS = {
    events.WAIT: "waits",
    events.POOL_HIT: "pool_hits",
    events.POOL_MISS: "pool_misses",
    events.POOL_RETURN: "pool_returns",
    events.POOL_OVERFLOW: "pool_overflows",
    events.DEVICE_MALLOC: "device_mallocs",
    events.DEVICE_FREE: "device_frees",
    events.ALLOC_RETRY: "alloc_retries",
    events.ALLOCATOR_FLUSH: "allocator_flushes",
}
_SUMS = (
    (events.WAIT, "duration", "wait_ns"),
    (events.UPLOAD, "bytes", "upload_bytes"),
    (events.EVICT, "bytes", "evict_bytes"),
)


def _table(kinds: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, dtype=bool)
    table[list(kinds)] = True
    return table


_IS_OF_STEP = _table((*_MOVES, *_COUNTS))
_IS_MOVE = _table(tuple(_MOVES))
_IS_POOL = _table(_POOL)
_WHAT = np.zeros(256, dtype=np.int64)
for _kind, _what in _MOVES.items():
    _WHAT[_kind] = _what

# Rows that wait are columns of one matrix, int64 (fields, rows).
POSITION, STEP, TIME, KIND, LAYER, NAME, BYTES, DURATION, ENTRIES = range(9)
BEFORE = -1  # the position of a row from an earlier batch
_FIELD = {"bytes": BYTES, "duration": DURATION}


@dataclass(frozen=True, slots=True)
class Geometry:
    """What the weight pool did for one geometry after warm-up."""

    name: str
    hits: int
    misses: int
    returns: int
    overflows: int


@dataclass(frozen=True, slots=True)
class StepSettings:
    """What the fold must know as it goes: steps of warm-up, and which layer is lm_head."""

    warmup_steps: int
    head: int | None


class StepFold:
    """Folds rows into steps."""

    def __init__(self) -> None:
        self.window = Window()
        self._table = StepTable()
        self._waiting: list[Numbers] = []
        self._highest = -1
        self._geometries: dict[str, int] = {}
        self._pool_counts = np.zeros((0, len(_POOL)), dtype=np.int64)
        self.ignored_rows = 0

    @property
    def steps(self) -> Steps:
        """Steps that have ended."""
        return self._table.steps()

    @property
    def steps_ended(self) -> int:
        """Number of all step rows, those past the table's bound among them."""
        return self._table.ended

    @property
    def geometries(self) -> tuple[Geometry, ...]:
        """Of the weight pool, in the order in which they appeared."""
        counts = self._pool_counts.tolist()
        return tuple(Geometry(name, *counts[index]) for name, index in self._geometries.items())

    def fold(self, batch: Batch, start: int, stop: int, settings: StepSettings) -> None:
        """Take the rows ``start`` to ``stop`` of ``batch``."""
        rows = self._collect(batch, start, stop)
        self._wait(rows)
        ends = np.flatnonzero(batch["kind"][start:stop] == events.STEP) + start
        if len(ends):
            self._close(batch, ends, settings)
        else:
            rows[POSITION] = BEFORE

    def window_now(self) -> Window:
        """The window with the rows of steps that have not ended."""
        window = self.window.copy()
        if self._waiting:
            rows = np.concatenate(self._waiting, axis=1)
            rows = rows[:, _IS_MOVE[rows[KIND]]]
            step = np.maximum(rows[STEP], self._highest + 1)
            rows = rows[:, np.lexsort((rows[TIME], step))]
            window.fold(_moves(rows, np.zeros_like(rows[STEP])), 1, head=None)
        return window

    def _collect(self, batch: Batch, start: int, stop: int) -> Numbers:
        """What of ``batch`` belongs to steps."""
        kind = batch["kind"][start:stop].view(np.uint8)
        is_wanted = _IS_OF_STEP[kind]
        named = self._names(batch, start, stop, kind)
        if named is not None:
            is_wanted = is_wanted | ((kind == events.SAMPLE) & (named >= 0))
        rows = np.flatnonzero(is_wanted) + start
        matrix = np.empty((9, len(rows)), dtype=np.int64)
        matrix[POSITION] = rows
        matrix[STEP] = batch["step"][rows]
        matrix[TIME] = batch["t_ns"][rows]
        matrix[KIND] = kind[rows - start]
        matrix[LAYER] = batch["layer"][rows]
        matrix[NAME] = -1 if named is None else named[rows - start]
        np.clip(batch["bytes"][rows], -1, MAX_BYTES, out=matrix[BYTES])
        np.clip(batch["duration_ns"][rows], -1, MAX_NS, out=matrix[DURATION])
        value = np.nan_to_num(batch["value"][rows], nan=1.0, posinf=1.0, neginf=1.0)
        matrix[ENTRIES] = np.clip(value, 0, MAX_ENTRIES)
        return self._without_strange_layers(matrix)

    def _without_strange_layers(self, rows: Numbers) -> Numbers:
        layer = rows[LAYER]
        is_strange = _IS_MOVE[rows[KIND]] & ((layer < 0) | (layer >= MAX_LAYERS))
        if not is_strange.any():
            return rows
        self.ignored_rows += int(is_strange.sum())
        return rows[:, ~is_strange]

    def _names(
        self, batch: Batch, start: int, stop: int, kind: npt.NDArray[np.uint8]
    ) -> Numbers | None:
        """For each row the number of its geometry or step metric, −1 where neither."""
        is_pool, is_sample = _IS_POOL[kind], kind == events.SAMPLE
        if not (is_pool.any() or is_sample.any()):
            return None
        codes, names = batch.names
        codes = codes[start:stop]
        metric = np.array([_METRICS.get(name, -1) for name in names] + [-1])
        geometry = np.full(len(names) + 1, -1)
        for code in np.unique(codes[is_pool]).tolist():
            geometry[code] = self._geometry(names[code] if code >= 0 else "")
        is_of_step = is_sample & (batch["step"][start:stop] >= 0)
        return np.where(is_pool, geometry[codes], np.where(is_of_step, metric[codes], -1))

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
        if sum(part.shape[1] for part in self._waiting) > MAX_WAITING_ROWS:
            self._waiting, everything = [], np.concatenate(self._waiting, axis=1)
            kept = everything[:, -MAX_WAITING_ROWS // 2 :]
            self.ignored_rows += everything.shape[1] - kept.shape[1]
            self._waiting.append(kept)

    def _close(self, batch: Batch, ends: Numbers, settings: StepSettings) -> None:
        """Fold the rows whose steps end with the rows ``ends`` of ``batch``."""
        numbers = batch["step"][ends]
        highest = np.maximum.accumulate(np.maximum(numbers, self._highest))
        self._highest = int(highest[-1])
        block = np.zeros((len(ends), len(COLUMN)), dtype=np.int64)
        block[:, COLUMN["step"]] = numbers
        self._set_times(block, batch, ends)
        rows = np.concatenate(self._waiting or [np.empty((9, 0), dtype=np.int64)], axis=1)
        slot = np.maximum(
            np.searchsorted(ends, rows[POSITION]), np.searchsorted(highest, rows[STEP])
        )
        is_closed = slot < len(ends)
        left = rows[:, ~is_closed]
        left[POSITION] = BEFORE
        self._waiting = [left] if left.shape[1] else []
        rows, slot = rows[:, is_closed], slot[is_closed]
        _set_counts(block, rows, slot)
        self._count_pool(rows, slot, settings.warmup_steps)
        self._follow_window(block, rows, slot, settings.head)
        _set_readings(block, rows, slot)
        self._table.append(block)

    def _set_times(self, block: Numbers, batch: Batch, ends: Numbers) -> None:
        end = np.clip(batch["t_ns"][ends], -MAX_NS, MAX_NS)
        duration = np.clip(batch["duration_ns"][ends], -1, MAX_NS)
        previous = np.concatenate(([self._table.last_end_ns], end[:-1]))
        start = np.where(duration >= 0, end - duration, np.minimum(previous, end))
        block[:, COLUMN["end_ns"]] = end
        block[:, COLUMN["start_ns"]] = start
        block[:, COLUMN["duration_ns"]] = end - start

    def _count_pool(self, rows: Numbers, slot: Numbers, warmup_steps: int) -> None:
        is_counted = _IS_POOL[rows[KIND]] & (rows[NAME] >= 0)
        is_counted &= slot + self._table.ended >= warmup_steps
        if not is_counted.any():
            return
        which = rows[KIND, is_counted] - events.POOL_HIT
        key = rows[NAME, is_counted] * len(_POOL) + which
        counts = np.bincount(key, minlength=self._pool_counts.size)
        self._pool_counts += counts.reshape(self._pool_counts.shape)

    def _follow_window(
        self, block: Numbers, rows: Numbers, slot: Numbers, head: int | None
    ) -> None:
        is_move = _IS_MOVE[rows[KIND]]
        rows, slot = rows[:, is_move], slot[is_move]
        order = np.lexsort((rows[TIME], slot))
        occupancy = self.window.fold(_moves(rows[:, order], slot[order]), len(block), head=head)
        for name in occupancy.__slots__:
            block[:, COLUMN[name]] = getattr(occupancy, name)


def _moves(rows: Numbers, slot: Numbers) -> Moves:
    return Moves(
        slot=slot,
        layer=rows[LAYER],
        what=_WHAT[rows[KIND]],
        entries=rows[ENTRIES],
        bytes=np.maximum(rows[BYTES], 0),
    )


def _set_counts(block: Numbers, rows: Numbers, slot: Numbers) -> None:
    """Rows of each kind, and sums of what they carry."""
    kinds, steps = len(events.KINDS), len(block)
    counts = np.bincount(slot * kinds + rows[KIND], minlength=steps * kinds).reshape(-1, kinds)
    for kind, column in _COUNTS.items():
        block[:, COLUMN[column]] = counts[:, kind]
    for kind, field, column in _SUMS:
        is_kind = rows[KIND] == kind
        given = np.maximum(rows[_FIELD[field], is_kind], 0)
        block[:, COLUMN[column]] = _sum_by_slot(slot[is_kind], given, steps)
    is_timed = (rows[KIND] == events.UPLOAD) & (rows[DURATION] >= 0)
    timed = np.bincount(slot[is_timed], minlength=steps)
    total = _sum_by_slot(slot[is_timed], rows[DURATION, is_timed], steps)
    is_partly_timed = timed < counts[:, events.UPLOAD]
    block[:, COLUMN["upload_duration_ns"]] = np.where(is_partly_timed, -1, total)


def _set_readings(block: Numbers, rows: Numbers, slot: Numbers) -> None:
    """The last reading of each metric in its step; −1 where there is none."""
    is_sample = rows[KIND] == events.SAMPLE
    slot, metric, size = slot[is_sample], rows[NAME, is_sample], rows[BYTES, is_sample]
    for index, column in enumerate(STEP_METRICS.values()):
        if column != "in_flight_bytes":  # followed in the window where it was not read
            block[:, COLUMN[column]] = -1
        is_metric = (metric == index) & (size >= 0)
        block[slot[is_metric], COLUMN[column]] = size[is_metric]


def _sum_by_slot(slot: Numbers, values: Numbers, steps: int) -> Numbers:
    sums = np.zeros(steps, dtype=np.int64)
    if len(slot):
        np.add.at(sums, slot, values)
    return sums
