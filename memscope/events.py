"""The vocabulary of a recording: every kind of event, every column and its unit.

They are named only here. A file holds a kind as its number, and the names of its kinds, so that a
kind of a newer version still has a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Kind(IntEnum):
    """What happened. Add new kinds at the end: files hold the numbers."""

    FACT = 0
    STEP = 1
    LAYER = 2
    WAIT = 3
    UPLOAD = 4
    EVICT = 5
    HOST_LOAD = 6
    HOST_RELEASE = 7
    POOL_HIT = 8
    POOL_MISS = 9
    POOL_RETURN = 10
    POOL_OVERFLOW = 11
    DEVICE_MALLOC = 12
    DEVICE_FREE = 13
    SAMPLE = 14
    MODULE_LOAD = 15
    ALLOCATOR_FLUSH = 16
    ALLOC_RETRY = 17
    KV_BLOCK_ALLOC = 18
    KV_BLOCK_FREE = 19
    PREFIX_HIT = 20
    PREFIX_EVICT = 21
    KV_SWAP = 22
    REQUEST_SUBMIT = 23
    REQUEST_ADMIT = 24
    REQUEST_FINISH = 25
    REQUEST_REJECT = 26
    REQUEST_PREEMPT = 27
    OOM = 28
    SEGMENT = 29
    BLOCK = 30
    MARK = 31
    PHASE = 32
    DROPPED = 33


# Never replaced by sums per step and kind: they are rare, and a view without them would be wrong.
NEVER_SUMMED = frozenset(
    (Kind.FACT, Kind.STEP, Kind.OOM, Kind.MARK, Kind.PHASE, Kind.SEGMENT, Kind.BLOCK)
)
# Replaced by sums only if events come faster than they can be written, not when they are old.
KEPT_WHEN_OLD = NEVER_SUMMED | {
    Kind.ALLOCATOR_FLUSH,
    Kind.ALLOC_RETRY,
    Kind.MODULE_LOAD,
    Kind.DROPPED,
    Kind.KV_BLOCK_ALLOC,
    Kind.KV_BLOCK_FREE,
    Kind.PREFIX_HIT,
    Kind.PREFIX_EVICT,
    Kind.KV_SWAP,
    Kind.REQUEST_SUBMIT,
    Kind.REQUEST_ADMIT,
    Kind.REQUEST_FINISH,
    Kind.REQUEST_REJECT,
    Kind.REQUEST_PREEMPT,
}

KINDS = tuple(kind.name.lower() for kind in Kind)
"""Names of the kinds as files and screens have them, by number."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the file. ``absent``: what a reader's array holds if there is no value."""

    name: str
    type: str
    absent: int | float | None
    unit: str


# In the order of a row as the recorder appends it: what is passed most often comes first.
COLUMNS = (
    Column("t_ns", "int64", None, "ns since the recording started"),
    Column("kind", "int8", None, "index into the list of kinds in the file"),
    Column("step", "int64", -1, "step, -1 if outside a step"),
    Column("layer", "int32", -1, "layer, -1 if none"),
    Column("name", "string", None, ""),
    Column("bytes", "int64", -1, "bytes"),
    Column("duration_ns", "int64", -1, "ns"),
    Column("value", "float64", float("nan"), "unit of the reading"),
    Column("data", "string", None, "JSON"),
    Column("address", "uint64", 0, "address, 0 if none"),
    Column("device", "int16", -1, "device index, -1 for the host or if none"),
    Column("stream", "int64", -1, "stream, -1 if none"),
    Column("request", "int64", -1, "request, -1 if none"),
    Column("thread", "int64", -1, "id of the thread"),
)
