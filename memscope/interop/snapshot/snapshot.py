"""A memory snapshot of PyTorch, as tables: segments, blocks, and the trace of events.

Reads what `torch.cuda.memory._dump_snapshot` has written since torch 2.0, and the list that
`torch.cuda.memory_snapshot()` returns, as pickle or JSON. Keys that it does not know are ignored.
What a file says is checked before it is used: types, sizes, that blocks add up to their segment,
and that no list is walked twice, since a few hundred bytes can otherwise unfold without end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from memscope.interop.snapshot.plain_data import load_plain
from memscope.interop.snapshot.trace import Trace, read_trace
from memscope.interop.snapshot.values import (
    Budget,
    Names,
    PoolId,
    Stacks,
    as_list,
    check_dicts,
    damaged,
    numbers,
    pool_ids,
    printable,
    stack_ids,
    texts,
)

Numbers = npt.NDArray[np.int64]
ALLOCATED, PENDING, INACTIVE = 0, 1, 2

# torch's docstring says active_awaiting_free; what it writes is active_pending_free.
_STATES = {
    "active_allocated": ALLOCATED,
    "active_pending_free": PENDING,
    "active_awaiting_free": PENDING,
    "inactive": INACTIVE,
}


@dataclass(frozen=True, slots=True)
class Segments:
    """What the driver gave, one value a segment. ``pool``: a number into ``Snapshot.pools``."""

    device: Numbers
    address: Numbers
    bytes: Numbers
    stream: Numbers
    pool: Numbers
    is_small: npt.NDArray[np.bool_]
    is_expandable: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Pieces of segments in order of segment and address, one value a block.

    ``segment``: a row of Segments. ``state``: ALLOCATED, PENDING (freed, another stream may still
    use it) or INACTIVE. ``stack``: a number into ``Snapshot.stacks``, −1 where none was recorded.
    """

    segment: Numbers
    address: Numbers
    bytes: Numbers
    requested: Numbers
    state: Numbers
    stack: Numbers

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One dump.

    ``traces``: by device, in order of time; empty where no history was recorded. ``schema``: the
    first torch that writes such keys.
    """

    segments: Segments
    blocks: Blocks
    traces: dict[int, Trace]
    stacks: Stacks
    pools: tuple[PoolId, ...]
    settings: dict[str, Any]
    schema: str
    annotations: tuple[Annotation, ...]

    @property
    def devices(self) -> list[int]:
        """Devices that hold a segment or have events."""
        return sorted({*self.segments.device.tolist(), *self.traces})


@dataclass(frozen=True, slots=True)
class Annotation:
    """Start or end of a `record_function` range, at a time of the trace's clock."""

    name: str
    is_start: bool
    device: int
    time_us: int


def read_snapshot(stream: IO[bytes], size: int) -> Snapshot:
    """The snapshot in ``stream``, of ``size`` bytes once unpacked. Raises MemscopeError."""
    return check_snapshot(load_plain(stream), size)


def check_snapshot(data: Any, size: int) -> Snapshot:
    """Tables of what a snapshot file held. Raises MemscopeError where it is none."""
    if isinstance(data, list):
        data = {"segments": data}
    if not isinstance(data, dict) or "segments" not in data:
        raise damaged("has no list of segments: it is no memory snapshot of PyTorch")
    budget, stacks, pools = Budget(size), Stacks(), Names[PoolId](first=(0, 0))
    rows = as_list(data["segments"], "segments")
    check_dicts(rows, "segment", budget)
    segments = _segments(rows, pools)
    blocks = _blocks(rows, segments, stacks, budget)
    traces = {}
    for device, entries in enumerate(as_list(data.get("device_traces", []), "device_traces")):
        entries = as_list(entries, "device_traces")
        if entries:
            check_dicts(entries, "event", budget)
            traces[device] = read_trace(entries, stacks, pools, budget)
    return Snapshot(
        segments=segments,
        blocks=blocks,
        traces=traces,
        stacks=stacks,
        pools=pools.values,
        settings=_settings(data.get("allocator_settings")),
        schema=_schema(data, rows),
        annotations=_annotations(data.get("external_annotations"), budget),
    )


def _segments(rows: list[dict[str, Any]], pools: Names[PoolId]) -> Segments:
    kinds = texts(rows, "segment_type", "segment", "large")
    return Segments(
        device=numbers(rows, "device", "segment", 0, most=1 << 15),
        address=numbers(rows, "address", "segment", is_address=True),
        bytes=numbers(rows, "total_size", "segment"),
        stream=numbers(rows, "stream", "segment", 0, is_address=True),
        pool=pool_ids(rows, "segment_pool_id", pools),
        is_small=np.array([kind == "small" for kind in kinds], dtype=bool),
        is_expandable=np.array([row.get("is_expandable") is True for row in rows], dtype=bool),
    )


def _blocks(
    rows: list[dict[str, Any]], segments: Segments, stacks: Stacks, budget: Budget
) -> Blocks:
    lists = [as_list(row.get("blocks"), "blocks") for row in rows]
    counts = np.array([len(each) for each in lists], dtype=np.int64)
    budget.spend(int(counts.sum()))
    flat = [block for each in lists for block in each]
    check_dicts(flat, "block")
    segment = np.repeat(np.arange(len(rows), dtype=np.int64), counts)
    sizes = numbers(flat, "size", "block")
    state = _states(flat)
    legacy = [_last_use(block) for block in flat]
    requested = numbers(flat, "requested_size", "block", -1)
    if (requested < 0).any():
        used = numbers(legacy, "real_size", "block", -1)
        requested = np.where(requested < 0, used, requested)
        requested = np.where(requested < 0, sizes, requested)
    blocks = Blocks(
        segment=segment,
        address=_block_addresses(flat, segments, segment, sizes),
        bytes=sizes,
        requested=np.where(state == INACTIVE, 0, np.minimum(requested, sizes)),
        state=state,
        stack=stack_ids(_frames(flat, legacy), stacks, budget),
    )
    _check_sums(rows, segments, blocks)
    return blocks


def _states(flat: list[dict[str, Any]]) -> Numbers:
    found = texts(flat, "state", "block")
    unknown = set(found) - set(_STATES)
    if unknown:
        raise damaged("has a block in a state that is none of PyTorch's")
    return np.array([_STATES[name] for name in found], dtype=np.int64)


_NEVER_USED: dict[str, Any] = {}


def _last_use(block: dict[str, Any]) -> dict[str, Any]:
    """Torch 2.0 keeps size and stack of a block's uses in its ``history``, the newest first."""
    history = block.get("history")
    if type(history) is not list or not history or type(history[0]) is not dict:
        return _NEVER_USED
    newest: dict[str, Any] = history[0]
    return newest


def _frames(flat: list[dict[str, Any]], legacy: list[dict[str, Any]]) -> list[Any]:
    pairs = zip(flat, legacy, strict=True)
    return [block.get("frames") or used.get("frames") for block, used in pairs]


def _block_addresses(
    flat: list[dict[str, Any]], segments: Segments, segment: Numbers, sizes: Numbers
) -> Numbers:
    """Where blocks lie: one after the other in their segment (torch 2.0 does not say it)."""
    ends = np.cumsum(sizes)
    starts = ends - sizes
    first = np.searchsorted(segment, np.arange(len(segments)))
    base = starts[np.minimum(first, max(len(starts) - 1, 0))] if len(starts) else starts
    derived = segments.address[segment] + starts - base[segment] if len(starts) else starts
    written = numbers(flat, "address", "block", -1, is_address=True)
    if ((written >= 0) & (written != derived)).any():
        raise damaged("has blocks that do not follow one another in their segment")
    return derived


def _check_sums(rows: list[dict[str, Any]], segments: Segments, blocks: Blocks) -> None:
    """What a segment says of its blocks is what they add up to."""
    active = blocks.state != INACTIVE
    claims = (
        ("total_size", blocks.bytes),
        ("allocated_size", np.where(blocks.state == ALLOCATED, blocks.bytes, 0)),
        ("active_size", np.where(active, blocks.bytes, 0)),
    )
    for key, parts in claims:
        claimed = numbers(rows, key, "segment", -1)
        found = np.zeros(len(segments), dtype=np.int64)
        np.add.at(found, blocks.segment, parts)
        if ((claimed >= 0) & (claimed != found)).any():
            raise damaged("has blocks that do not add up to their segment")
    order = np.lexsort((segments.address, segments.device))
    start, end = segments.address[order], (segments.address + segments.bytes)[order]
    same = segments.device[order][1:] == segments.device[order][:-1]
    if (same & (start[1:] < end[:-1])).any():
        raise damaged("has segments that overlap")


# Which keys came with which torch: in events, in the file, in blocks.
_EVENT_KEYS = (("pool_id", "2.12"), ("user_metadata", "2.10"), ("compile_context", "2.8"))
_FILE_KEYS = (("external_annotations", "2.5"), ("allocator_settings", "2.3"))


def _schema(data: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The first torch that writes such keys."""
    traces = data.get("device_traces", [])
    event: dict[str, Any] = next((entries[0] for entries in traces if entries), {})
    found = [version for key, version in _EVENT_KEYS if key in event]
    found += [version for key, version in _FILE_KEYS if key in data]
    found += ["2.2"] if "time_us" in event else []
    found += ["2.1"] if any("segment_pool_id" in row for row in rows[:1]) else []
    return found[0] if found else "2.0"


def _settings(value: Any) -> dict[str, Any]:
    """Settings that are plain values."""
    if type(value) is not dict:
        return {}
    plain = (str, int, float, bool)
    return {
        printable(key[:80]): printable(item[:4096]) if type(item) is str else item
        for key, item in value.items()
        if type(key) is str and type(item) in plain and not _is_huge(item)
    }


def _is_huge(item: Any) -> bool:
    return type(item) is int and abs(item) >= 1 << 63


def _annotations(value: Any, budget: Budget) -> tuple[Annotation, ...]:
    if type(value) is not list:
        return ()
    budget.spend(len(value))
    return tuple(
        Annotation(
            printable(each["name"][:200]), each["stage"] == "START", each["device"], each["time_us"]
        )
        for each in value
        if type(each) is dict
        and type(each.get("name")) is str
        and each.get("stage") in ("START", "END")
        and type(each.get("device")) is int
        and type(each.get("time_us")) is int
        and abs(each["time_us"]) < 1 << 62
    )
