"""Downsamples a batch: sums per step and kind replace events that only matter per step.

Kept as they are: the kinds of ``KEPT_WHEN_OLD``, driver calls of other libraries, and of each few
seconds the moments at which a reading was highest, lowest or last. The rest becomes ``dropped``
rows with count, bytes and duration (absent if one event had none), each at the place of its last
event. Sums of uploads and evictions also list the layers, as [first, last] of each run of
neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memscope.events import KEPT_WHEN_OLD, KINDS, Kind
from memscope.recorder.rows import encode_rows, make_row

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

WINDOW_NS = 5_000_000_000
MOMENT_NS = 20_000_000  # readings this close belong together
REASON = "old"
MAX_LAYERS = 65_535

_KEPT = np.zeros(256, dtype=bool)
_KEPT[list(KEPT_WHEN_OLD)] = True
_CALLS = (Kind.DEVICE_MALLOC, Kind.DEVICE_FREE)
_MOVES = (Kind.UPLOAD, Kind.LAYER, Kind.EVICT)


class LastMoves:
    """The last move of each layer, from batch to batch."""

    def __init__(self) -> None:
        self._kind: Numbers = np.full(0, -1)

    def follow(self, kind: Numbers, layer: Numbers) -> Flags:
        """Whether each row moves its layer anew: the layer's last move was of another kind.

        A layer that is uploaded in several parts counts as uploaded once.
        """
        is_move = np.isin(kind, _MOVES) & (layer >= 0) & (layer < MAX_LAYERS)
        rows = np.flatnonzero(is_move)
        is_new = np.zeros(len(kind), dtype=bool)
        if not len(rows):
            return is_new
        missing = int(layer[rows].max()) + 1 - len(self._kind)
        self._kind = np.pad(self._kind, (0, max(missing, 0)), constant_values=-1)
        rows = rows[np.argsort(layer[rows], kind="stable")]
        moved, what = layer[rows], kind[rows]
        before = np.concatenate(([-1], what[:-1]))
        is_first = np.concatenate(([True], moved[1:] != moved[:-1]))
        before[is_first] = self._kind[moved[is_first]]
        is_new[rows] = what != before
        self._kind[moved] = what  # the last of several counts
        return is_new


def thin(batch: pa.RecordBatch, moves: LastMoves) -> pa.RecordBatch:
    """``batch`` with sums in place of events that need not be kept."""
    columns = _Columns.of(batch)
    is_new = moves.follow(columns.kind, columns.layer)
    is_kept = _KEPT[columns.kind.astype(np.uint8)] | _kept_readings(columns)
    is_kept |= np.isin(columns.kind, _CALLS) & (columns.device >= 0)
    kept, summed = np.flatnonzero(is_kept), np.flatnonzero(~is_kept)
    if not len(summed):
        return batch
    groups = _group(columns, summed)
    sums = encode_rows([_sum_row(columns, group, is_new) for group in groups], 0, batch.schema)
    last = np.array([group[-1] for group in groups], dtype=np.int64)
    whole = pa.Table.from_batches([batch.take(pa.array(kept)), sums])
    order = np.argsort(np.concatenate((kept, last)), kind="stable")
    return whole.take(pa.array(order)).combine_chunks().to_batches()[0]


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns that sums are made of. ``size`` and ``duration`` are −1 if absent."""

    t_ns: Numbers
    kind: Numbers
    step: Numbers
    layer: Numbers
    device: Numbers
    size: Numbers
    duration: Numbers
    value: npt.NDArray[np.float64]
    code: Numbers
    names: list[str]

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> _Columns:
        def numbers(name: str) -> Numbers:
            column = pc.fill_null(batch.column(name), pa.scalar(-1, batch.column(name).type))
            return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64)

        name = batch.column("name").dictionary_encode()
        return cls(
            t_ns=numbers("t_ns"),
            kind=numbers("kind"),
            step=numbers("step"),
            layer=numbers("layer"),
            device=numbers("device"),
            size=numbers("bytes"),
            duration=numbers("duration_ns"),
            value=batch.column("value").to_numpy(zero_copy_only=False),
            code=pc.fill_null(name.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64),
            names=name.dictionary.to_pylist(),
        )


def _kept_readings(columns: _Columns) -> Flags:
    """Whether each row is a reading at a moment that stands for its window. Readings of layers are
    not.
    """
    is_kept = np.zeros(len(columns.kind), dtype=bool)
    rows = np.flatnonzero((columns.kind == Kind.SAMPLE) & (columns.layer < 0))
    if not len(rows):
        return is_kept
    value = np.where(columns.size[rows] >= 0, columns.size[rows], columns.value[rows])
    moment = columns.t_ns[rows] // MOMENT_NS
    key = _combine(columns.t_ns[rows] // WINDOW_NS, columns.code[rows], columns.device[rows])
    by_value = np.lexsort((np.nan_to_num(value), key))
    by_place = np.argsort(key, kind="stable")
    is_end = np.append(key[by_value][1:] != key[by_value][:-1], True)
    is_start = np.concatenate(([True], is_end[:-1]))
    chosen = (by_value[is_end], by_value[is_start], by_place[is_end])
    is_kept[rows] = np.isin(moment, moment[np.concatenate(chosen)])
    return is_kept


def _group(columns: _Columns, rows: Numbers) -> list[Numbers]:
    """``rows`` grouped by kind, step and name.

    Rows outside a step belong to the step that ends next.
    """
    ends = np.flatnonzero(columns.kind == Kind.STEP)
    next_end = np.where(columns.step[rows] < 0, np.searchsorted(ends, rows), -1)
    key = _combine(columns.kind[rows], columns.step[rows], columns.code[rows], next_end)
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(key[order][1:] != key[order][:-1]) + 1
    return np.split(rows[order], starts)


def _combine(*keys: Numbers) -> Numbers:
    """One number for each combination of values."""
    combined = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        distinct, code = np.unique(key, return_inverse=True)
        combined = np.unique(combined * len(distinct) + code, return_inverse=True)[1]
    return combined


def _sum_row(columns: _Columns, rows: Numbers, is_new: Flags) -> tuple[object, ...]:
    first, last = int(rows[0]), int(rows[-1])
    kind, code = int(columns.kind[first]), int(columns.code[first])
    name = columns.names[code] if code >= 0 else None
    data: dict[str, object] = {"kind": KINDS[kind], "rows": len(rows), "reason": REASON}
    if kind in (Kind.UPLOAD, Kind.EVICT):
        data["layers"] = layer_ranges(columns.layer[rows[is_new[rows]]])
    fields = {"t_ns": int(columns.t_ns[last]), "step": int(columns.step[first])}
    sizes, durations = columns.size[rows], columns.duration[rows]
    fields["bytes"] = int(np.maximum(sizes, 0).sum())
    if durations.min() >= 0:
        fields["duration_ns"] = int(durations.sum())
    return make_row(Kind.DROPPED, name, data, **fields, value=len(rows))


def layer_ranges(layers: Numbers) -> list[list[int]]:
    """Runs of neighbours as [first, last]. A layer that occurs twice is in two of them."""
    ranges: list[list[int]] = []
    left = np.sort(layers)
    while len(left):
        is_again = np.concatenate(([False], left[1:] == left[:-1]))
        once, left = left[~is_again], left[is_again]
        parts = np.split(once, np.flatnonzero(np.diff(once) != 1) + 1)
        ranges += [[int(part[0]), int(part[-1])] for part in parts]
    return ranges
