"""Hand-written events as batches, the way a reader sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memscope.analysis.timeline.timeline import Timeline
from memscope.events import COLUMNS, KINDS, Kind
from memscope.format.frames import event_schema
from memscope.format.header import FORMAT, Header
from memscope.reader.scanner import Batch
from memscope.reader.state import State, StateName
from memscope.recorder.rows import encode_rows

HEADER = Header(
    format=FORMAT,
    kinds=KINDS,
    run_id="run",
    host="laptop",
    pid=1,
    rank=None,
    started_at_ns=0,
    started_monotonic_ns=0,
    command=("program",),
)
_SCHEMA = event_schema({})
_IDS = ("step", "layer", "device", "stream", "request", "thread")

Event = dict[str, Any]


def event(kind: int, t_ns: int = 0, **fields: Any) -> Event:
    """One event; what is left out is absent."""
    return {"t_ns": t_ns, "kind": kind, **fields}


def fact(key: str, data: object) -> Event:
    return event(Kind.FACT, name=key, data=data)


def make_batch(rows: Sequence[Event], sequence: int = 1) -> Batch:
    """One batch of one event or more."""
    values = [tuple(_value(row, column.name) for column in COLUMNS) for row in rows]
    return Batch(encode_rows(values, 0, _SCHEMA), sequence)


def _value(row: Event, column: str) -> Any:
    return row.get(column, -1 if column in _IDS else None)


def fold(rows: Sequence[Event], *, warmup_steps: int | None = None, split: int = 0) -> Timeline:
    """The timeline of ``rows``, in batches of ``split`` rows or in one."""
    timeline = Timeline(HEADER, warmup_steps=warmup_steps)
    size = split or max(len(rows), 1)
    for number, start in enumerate(range(0, len(rows), size), 1):
        timeline.add(make_batch(rows[start : start + size], number))
    return timeline


def state(name: str = "complete") -> State:
    """A state of that name."""
    return State(name=StateName(name), batches=1, rows=10, lost_rows=0, lost_bytes=0)
