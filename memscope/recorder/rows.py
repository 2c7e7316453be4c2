"""Events on their way to the file: appended as tuples, encoded as Arrow batches."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from memscope.events import COLUMNS
from memscope.format.arrow import pa

Row = tuple[Any, ...]
TRANSPOSED_ROWS = 512  # at once: the row objects of more do not stay in the processor's cache
WORK_NS = 500_000  # between two rests

_clock = time.perf_counter_ns


class Emit(Protocol):
    """Appends one event. ``memscope.events`` says what each kind carries.

    ``at_ns``: when it happened, by ``Recorder.clock``; now if not given. ``data`` is encoded later
    and must not change.
    """

    def __call__(
        self,
        kind: int,
        step: int = -1,
        layer: int = -1,
        name: str | None = None,
        bytes: int | None = None,
        duration_ns: int | None = None,
        value: float | None = None,
        data: object = None,
        address: int | None = None,
        device: int = -1,
        stream: int = -1,
        request: int = -1,
        at_ns: int | None = None,
    ) -> None: ...


def make_emit(rows: list[Row]) -> tuple[Emit, Callable[[], None]]:
    """An ``emit`` that appends to ``rows``, and a function that turns it off.

    A closure costs half of what a method costs.
    """
    append, clock, thread = rows.append, time.perf_counter_ns, threading.get_ident

    def emit(
        kind: int,
        step: int = -1,
        layer: int = -1,
        name: str | None = None,
        bytes: int | None = None,
        duration_ns: int | None = None,
        value: float | None = None,
        data: object = None,
        address: int | None = None,
        device: int = -1,
        stream: int = -1,
        request: int = -1,
        at_ns: int | None = None,
    ) -> None:
        append(
            (
                at_ns or clock(),
                kind,
                step,
                layer,
                name,
                bytes,
                duration_ns,
                value,
                data,
                address,
                device,
                stream,
                request,
                thread(),
            )
        )

    def switch_off() -> None:
        nonlocal append
        append = _ignore

    return emit, switch_off


def _ignore(row: Row) -> None:
    """The ``append`` of a recorder that is closed or has stopped."""


def make_row(kind: int, name: str | None, data: object, **fields: int) -> Row:
    """One row with the given fields; all others are absent."""
    given = {"t_ns": time.perf_counter_ns(), "kind": kind, "name": name, "data": data, **fields}
    ids = ("step", "layer", "device", "stream", "thread", "request")
    return tuple(given.get(column.name, -1 if column.name in ids else None) for column in COLUMNS)


def encode_rows(
    rows: Sequence[Row], start_ns: int, schema: pa.Schema, *, rest_seconds: float = 0.0
) -> pa.RecordBatch:
    """Rows as one Arrow batch of ``schema``, with times relative to ``start_ns`` and data as JSON.

    ``rest_seconds``: sleep after each half millisecond of work, so that the program gets Python's
    lock. Without it, the program would wait for the whole batch or for Python's switch interval of
    5 ms. Each rest costs the program a moment, so there are no more of them.
    """
    since_ns = _clock()
    columns: list[list[Any]] = [[] for _ in schema]
    for first in range(0, len(rows), TRANSPOSED_ROWS):
        parts = zip(*rows[first : first + TRANSPOSED_ROWS], strict=True)
        for column, part in zip(columns, parts, strict=True):
            column.extend(part)
        since_ns = _rest(since_ns, rest_seconds)
    columns[_DATA] = _encode_data(columns[_DATA])
    arrays: list[pa.Array] = []
    for column, field in zip(columns, schema, strict=True):
        since_ns = _rest(since_ns, rest_seconds)
        arrays.append(_encode(column, field.type))
    arrays[0] = pa.array(arrays[0].to_numpy() - start_ns)
    return pa.record_batch(arrays, schema=schema)


def sound_rows(rows: Sequence[Row], schema: pa.Schema) -> list[Row]:
    """The rows that can be encoded. A program may emit text where a number belongs."""
    try:
        encode_rows(rows, 0, schema)
        return list(rows)
    except Exception:
        half = len(rows) // 2
        if not half:
            return []
        return sound_rows(rows[:half], schema) + sound_rows(rows[half:], schema)


_DATA = next(index for index, column in enumerate(COLUMNS) if column.name == "data")


_encode_json = json.JSONEncoder(default=str).encode  # made once: `dumps` makes one a call
MAX_TEXT_CHARS = 10_000


def _to_json(value: Any) -> str:
    """``value`` as JSON. What has no JSON form becomes text with a note.

    One odd object must not end a recording.
    """
    try:
        return _encode_json(value)
    except Exception as error:
        note = f"no JSON: {type(error).__name__}: {error}"
    try:
        text = repr(value)
    except Exception:
        text = object.__repr__(value)
    return _encode_json({"text": text[:MAX_TEXT_CHARS], "note": note[:MAX_TEXT_CHARS]})


def _rest(since_ns: int, seconds: float) -> int:
    """Sleep if enough work was done since then. Returns the new start of work."""
    if not seconds or _clock() - since_ns < WORK_NS:
        return since_ns
    time.sleep(seconds)
    return _clock()


def _encode_data(column: list[Any]) -> list[str | None]:
    """Values as JSON. An object that many rows share is encoded once."""
    if column.count(None) == len(column):
        return column
    ids = list(map(id, column))
    values = dict(zip(ids, column, strict=True))
    texts = {key: None if value is None else _to_json(value) for key, value in values.items()}
    return [texts[key] for key in ids]


def _encode(column: list[Any], type: pa.DataType) -> pa.Array:
    first = column[0]
    if first == column[-1] and column.count(first) == len(column):  # most columns, cheaply
        return pa.repeat(pa.scalar(first, type), len(column))
    return pa.array(column, type)
