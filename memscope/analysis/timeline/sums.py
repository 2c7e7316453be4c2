"""Sums of events that were not written one by one.

The recorder writes sums for old segments, and for rows that came too fast. A sum is added to its
step by number, wherever it is in the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memscope.analysis.timeline.steps import COUNT_COLUMNS, MAX_STEPS, POOL_KINDS, Steps
from memscope.events import KINDS, Kind

if TYPE_CHECKING:
    from memscope.reader.scanner import Batch

Numbers = npt.NDArray[np.int64]

OLD = "old"
MAX_COUNT = 1 << 50
MAX_RANGES = 4096
MAX_LAYERS = 65_535
NOT_ENDED = -2  # stands for the step that ends next

_LAYERS = {Kind.UPLOAD: "uploads", Kind.EVICT: "evictions"}
_BYTES = {Kind.UPLOAD: "upload_bytes", Kind.EVICT: "evict_bytes"}
_DURATIONS = {Kind.WAIT: "wait_ns", Kind.UPLOAD: "upload_duration_ns"}
_UNTIMED = "untimed"
_COLUMNS = (
    *COUNT_COLUMNS.values(),
    *_LAYERS.values(),
    *_BYTES.values(),
    *_DURATIONS.values(),
    _UNTIMED,
)
_INDEX = {name: index for index, name in enumerate(_COLUMNS)}


@dataclass(frozen=True, slots=True)
class Sums:
    """The ``dropped`` rows of a batch: their kind, and the ``count`` of events in each.

    ``layers``: ranges [first, last] of layers for each row; None if they are not known.
    ``is_old``: the sum is from an old segment.
    """

    rows: Numbers
    kind: Numbers
    count: Numbers
    layers: list[list[list[int]] | None]
    is_old: npt.NDArray[np.bool_]


def read_sums(batch: Batch) -> Sums:
    """The sums in ``batch``. An unknown kind is −1."""
    rows = batch.where(Kind.DROPPED)
    texts = batch.record.column("data").take(pa.array(rows)).dictionary_encode()
    parsed = [_parse(text) for text in texts.dictionary.to_pylist()] + [_parse(None)]
    code = texts.indices.fill_null(len(parsed) - 1).to_numpy(zero_copy_only=False)
    count = np.nan_to_num(batch["value"][rows], nan=1, posinf=1, neginf=1)
    return Sums(
        rows=rows,
        kind=np.array([each[0] for each in parsed], dtype=np.int64)[code],
        count=np.clip(count, 0, MAX_COUNT).astype(np.int64),
        layers=[parsed[each][1] for each in code.tolist()],
        is_old=np.array([each[2] for each in parsed])[code],
    )


class SumFold:
    """Adds up sums for each step."""

    def __init__(self) -> None:
        self._row_of: dict[int, int] = {}
        self._table: Numbers = np.zeros((64, len(_COLUMNS)), dtype=np.int64)
        self._pool: dict[str, Numbers] = {}
        self.old: dict[str, int] = {}
        self.has_unknown_layers = False

    def add(self, batch: Batch, sums: Sums, *, warmup_steps: int, head: int | None) -> None:
        """Add the sums of one batch. ``head``: lm_head, which does not count as a layer."""
        ends = batch.where(Kind.STEP)
        numbers = batch["step"][ends]
        if len(numbers) and NOT_ENDED in self._row_of:
            self._move(NOT_ENDED, int(numbers[0]))
        if not len(sums.rows):
            return
        step = batch["step"][sums.rows].copy()
        outside = np.flatnonzero(step < 0)
        step[outside] = np.append(numbers, NOT_ENDED)[np.searchsorted(ends, sums.rows[outside])]
        self._add_steps(batch, sums, step, head)
        self._add_pool(batch, sums, step >= warmup_steps)
        for kind in np.unique(sums.kind[sums.is_old]).tolist():
            name = KINDS[kind]
            count = int(sums.count[sums.is_old & (sums.kind == kind)].sum())
            self.old[name] = self.old.get(name, 0) + count

    def added_to(self, steps: Steps) -> Steps:
        """``steps`` with their sums added."""
        if not self._row_of or not len(steps):
            return steps
        number = np.fromiter(self._row_of, dtype=np.int64)
        row = np.fromiter(self._row_of.values(), dtype=np.int64)
        place = np.minimum(np.searchsorted(steps.step, number), len(steps) - 1)
        is_there = steps.step[place] == number
        place, table = place[is_there], self._table[row[is_there]]
        changed = {}
        for name in _COLUMNS[:-1]:
            values = getattr(steps, name).copy()
            is_known = values[place] >= 0
            values[place[is_known]] += table[is_known, _INDEX[name]]
            changed[name] = values
        is_untimed = table[:, _INDEX[_UNTIMED]] > 0
        changed["upload_duration_ns"][place[is_untimed]] = -1
        return replace(steps, **changed)

    def pool_counts(self) -> dict[str, list[int]]:
        """Geometry → hits, misses, returns and overflows after warm-up."""
        return {name: counts.tolist() for name, counts in self._pool.items()}

    def _add_steps(self, batch: Batch, sums: Sums, step: Numbers, head: int | None) -> None:
        row = self._rows(step)
        size = np.maximum(batch["bytes"][sums.rows], 0)
        duration = batch["duration_ns"][sums.rows]
        layers = np.array([_count(each, head) for each in sums.layers], dtype=np.int64)
        for names, values in (
            (COUNT_COLUMNS, sums.count),
            (_LAYERS, np.maximum(layers, 0)),
            (_BYTES, size),
            (_DURATIONS, np.maximum(duration, 0)),
        ):
            for kind, name in names.items():
                is_kind = sums.kind == kind
                np.add.at(self._table, (row[is_kind], _INDEX[name]), values[is_kind])
        is_upload = sums.kind == Kind.UPLOAD
        np.add.at(self._table, (row[is_upload & (duration < 0)], _INDEX[_UNTIMED]), 1)
        self.has_unknown_layers |= bool((is_upload & (layers < 0)).any())

    def _add_pool(self, batch: Batch, sums: Sums, is_measured: npt.NDArray[np.bool_]) -> None:
        for which in np.flatnonzero(np.isin(sums.kind, POOL_KINDS) & is_measured).tolist():
            name = batch.name(int(sums.rows[which])) or ""
            if name in self._pool or len(self._pool) < MAX_RANGES:
                counts = self._pool.setdefault(name, np.zeros(len(POOL_KINDS), dtype=np.int64))
                counts[POOL_KINDS.index(int(sums.kind[which]))] += sums.count[which]

    def _rows(self, step: Numbers) -> Numbers:
        """The table row of each step. Steps beyond the bound share the last row."""
        distinct, which = np.unique(step, return_inverse=True)
        rows = []
        for number in distinct.tolist():
            if number not in self._row_of and len(self._row_of) < MAX_STEPS:
                self._row_of[number] = len(self._row_of)
            rows.append(self._row_of.get(number, MAX_STEPS))
        needed = max(rows) + 1
        if needed > len(self._table):
            grown = np.zeros((max(needed, 2 * len(self._table)), len(_COLUMNS)), dtype=np.int64)
            grown[: len(self._table)] = self._table
            self._table = grown
        return np.array(rows, dtype=np.int64)[which.reshape(-1)]

    def _move(self, source: int, target: int) -> None:
        row = self._row_of[source]
        (other,) = self._rows(np.array([target])).tolist()
        self._table[other] += self._table[row]
        self._table[row] = 0


def count_layers(ranges: list[list[int]]) -> Numbers:
    """All layers in the ranges, once for each range that has them."""
    parts = [np.arange(first, last + 1) for first, last in ranges]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _count(ranges: list[list[int]] | None, head: int | None) -> int:
    """Number of layers in ``ranges`` without lm_head; −1 if they are not known."""
    if ranges is None:
        return -1
    heads = sum(head is not None and first <= head <= last for first, last in ranges)
    return sum(last - first + 1 for first, last in ranges) - heads


def _parse(text: str | None) -> tuple[int, list[list[int]] | None, bool]:
    """Kind, layers, and whether the sum is from an old segment. Unknown parts get −1 or None."""
    try:
        data = json.loads(text or "null")
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        return -1, None, False
    kind = data.get("kind")
    code = KINDS.index(kind) if isinstance(kind, str) and kind in KINDS else -1
    return code, _ranges(data.get("layers")), code >= 0 and data.get("reason") == OLD


def _ranges(said: Any) -> list[list[int]] | None:
    if not isinstance(said, list) or len(said) > MAX_RANGES:
        return None
    for each in said:
        is_pair = isinstance(each, list) and len(each) == 2
        if not is_pair or not all(type(number) is int for number in each):
            return None
        if not 0 <= each[0] <= each[1] < MAX_LAYERS:
            return None
    return said
