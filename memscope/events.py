"""The vocabulary of a recording: every kind of event, every column and its unit.

This is the only place where they are named. A kind is stored as its position in ``KINDS``;
the names travel in each file, so that a kind from a newer version still has a name.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = (
    "fact",
    "step",
    "layer",
    "wait",
    "upload",
    "evict",
    "host_load",
    "host_release",
    "pool_hit",
    "pool_miss",
    "pool_return",
    "pool_overflow",
    "device_malloc",
    "device_free",
    "sample",
    "module_load",
    "allocator_flush",
    "alloc_retry",
    "kv_block_alloc",
    "kv_block_free",
    "prefix_hit",
    "prefix_evict",
    "kv_swap",
    "request_submit",
    "request_admit",
    "request_finish",
    "request_reject",
    "request_preempt",
    "oom",
    "segment",
    "block",
    "mark",
    "phase",
    "dropped",
)

(
    FACT,
    STEP,
    LAYER,
    WAIT,
    UPLOAD,
    EVICT,
    HOST_LOAD,
    HOST_RELEASE,
    POOL_HIT,
    POOL_MISS,
    POOL_RETURN,
    POOL_OVERFLOW,
    DEVICE_MALLOC,
    DEVICE_FREE,
    SAMPLE,
    MODULE_LOAD,
    ALLOCATOR_FLUSH,
    ALLOC_RETRY,
    KV_BLOCK_ALLOC,
    KV_BLOCK_FREE,
    PREFIX_HIT,
    PREFIX_EVICT,
    KV_SWAP,
    REQUEST_SUBMIT,
    REQUEST_ADMIT,
    REQUEST_FINISH,
    REQUEST_REJECT,
    REQUEST_PREEMPT,
    OOM,
    SEGMENT,
    BLOCK,
    MARK,
    PHASE,
    DROPPED,
) = range(len(KINDS))


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the file. ``absent`` is what a reader's array holds where there is no value."""

    name: str
    type: str
    absent: int | float | None
    unit: str


# In the order of a row as the recorder appends it: what is passed most often comes first.
COLUMNS = (
    Column("t_ns", "int64", None, "ns since the recording started"),
    Column("kind", "int8", None, "position in the file's list of kinds"),
    Column("step", "int64", -1, "step, -1 outside of one"),
    Column("layer", "int32", -1, "layer, -1 where none"),
    Column("name", "string", None, ""),
    Column("bytes", "int64", -1, "bytes"),
    Column("duration_ns", "int64", -1, "ns"),
    Column("value", "float64", float("nan"), "as the reading says"),
    Column("data", "string", None, "JSON"),
    Column("address", "uint64", 0, "address"),
    Column("device", "int16", -1, "device index, -1 for the host or none"),
    Column("stream", "int64", -1, "stream, -1 where none"),
    Column("request", "int64", -1, "request, -1 where none"),
    Column("thread", "int64", -1, "thread that emitted"),
)
