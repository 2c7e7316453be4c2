"""The caching allocator's map as rows: every segment and its blocks, without traces.

Reading it takes the allocator's lock for each device in turn and calls no CUDA function.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from memscope.events import Kind
from memscope.facts import Fact
from memscope.interop.snapshot.snapshot import (
    ALLOCATED,
    INACTIVE,
    PENDING,
    Snapshot,
    check_snapshot,
)

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

MAX_BLOCKS = 200_000
MAX_SECONDS = 2.0
MAX_FRAMES = 12
CHUNK_BLOCKS = 10_000  # between two looks at the clock
_INDUCTOR = "torch._inductor"
_NO_BUDGET = 1 << 60  # torch's own objects are walked, not a stranger's file
_STATES = {
    ALLOCATED: "active_allocated",
    PENDING: "active_pending_free",
    INACTIVE: "inactive",
}
_PLAIN = (str, int, float, bool)

Segment = dict[str, Any]


def read_map(torch: Any) -> dict[str, Any]:
    """Torch's snapshot, without traces if this version of torch can leave them out (2.11)."""
    memory = torch.cuda.memory
    with without_inductor():
        if "include_traces" in inspect.signature(memory.memory_snapshot).parameters:
            found: dict[str, Any] = torch._C._cuda_memorySnapshot((0, 0, False))
            return found
        return dict(memory._snapshot())


@contextlib.contextmanager
def without_inductor() -> Iterator[None]:
    """Keep torch from importing ``torch._inductor``.

    With history on, it would look there for frames of compiled code. That import takes seconds, on
    the thread that ran out of memory.
    """
    if _INDUCTOR in sys.modules:
        yield
        return
    sys.modules[_INDUCTOR] = None  # type: ignore[assignment]  # an import of it fails at once
    try:
        yield
    finally:
        if sys.modules.get(_INDUCTOR, _INDUCTOR) is None:
            del sys.modules[_INDUCTOR]


def emit_map(
    recorder: Recorder,
    snapshot: dict[str, Any],
    *,
    device: int,
    at_ns: int,
    torch_version: str,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Record segments and blocks at the moment ``at_ns``, those of ``device`` first.

    At most ``MAX_BLOCKS`` blocks or ``MAX_SECONDS``. The fact says what was left out.
    """
    start = clock()
    segments = sorted(snapshot["segments"], key=lambda each: _rank(each, device))
    kept = _within(segments)
    rest, reason = segments[kept:], f"more than {MAX_BLOCKS:,} blocks"
    done = blocks = 0
    has_owners = False
    for chunk in _chunks(segments[:kept]):
        if clock() - start > MAX_SECONDS:
            rest, reason = segments[done:], f"more than {MAX_SECONDS:g} s"
            break
        tables = check_snapshot({"segments": chunk}, _NO_BUDGET)
        _emit_tables(recorder, tables, at_ns)
        has_owners = has_owners or bool(tables.stacks.stacks)
        done, blocks = done + len(chunk), blocks + len(tables.blocks)
    fact: dict[str, Any] = {
        "device": device,
        "segments": done,
        "blocks": blocks,
        "has_owners": has_owners,
        "seconds": round(clock() - start, 6),
        "torch": torch_version,
        "settings": _settings(snapshot.get("allocator_settings")),
    }
    if rest:
        fact |= {
            "left_out_segments": len(rest),
            "left_out_blocks": sum(len(each["blocks"]) for each in rest),
            "left_out_bytes": sum(each["total_size"] for each in rest),
            "reason": reason,
        }
    recorder.fact(Fact.MAP, fact)


def _rank(segment: Segment, device: int) -> tuple[bool, int]:
    return segment.get("device") != device, -segment["total_size"]


def _within(segments: list[Segment]) -> int:
    """How many of ``segments`` together have at most ``MAX_BLOCKS`` blocks."""
    left = MAX_BLOCKS
    for number, segment in enumerate(segments):
        left -= len(segment["blocks"])
        if left < 0:
            return number
    return len(segments)


def _chunks(segments: list[Segment]) -> Iterator[list[Segment]]:
    chunk: list[Segment] = []
    blocks = 0
    for segment in segments:
        chunk.append(segment)
        blocks += len(segment["blocks"])
        if blocks >= CHUNK_BLOCKS:
            yield chunk
            chunk, blocks = [], 0
    if chunk:
        yield chunk


def _emit_tables(recorder: Recorder, tables: Snapshot, at_ns: int) -> None:
    """Record segments, then their blocks. A block's ``value`` is the requested size in bytes.

    Rows with the same data share one object.
    """
    segments, blocks = tables.segments, tables.blocks
    device, stream = segments.device.tolist(), segments.stream.tolist()
    pool = [list(tables.pools[code]) for code in segments.pool.tolist()]
    for number in range(len(segments)):
        recorder.emit(
            Kind.SEGMENT,
            address=int(segments.address[number]),
            bytes=int(segments.bytes[number]),
            device=device[number],
            stream=stream[number],
            data={
                "type": "small" if segments.is_small[number] else "large",
                "pool": pool[number],
                "is_expandable": bool(segments.is_expandable[number]),
            },
            at_ns=at_ns,
        )
    details: dict[tuple[int, int, int], tuple[str | None, dict[str, Any]]] = {}
    columns = (blocks.segment, blocks.address, blocks.bytes, blocks.requested, blocks.state)
    rows = zip(*(column.tolist() for column in (*columns, blocks.stack)), strict=True)
    codes = segments.pool.tolist()
    for segment, address, size, requested, state, stack in rows:
        key = codes[segment], state, stack
        if key not in details:
            details[key] = _detail(tables, pool[segment], state, stack)
        name, data = details[key]
        recorder.emit(
            Kind.BLOCK,
            name=name,
            address=address,
            bytes=size,
            value=requested,
            device=device[segment],
            stream=stream[segment],
            data=data,
            at_ns=at_ns,
        )


def _detail(
    tables: Snapshot, pool: list[int], state: int, stack: int
) -> tuple[str | None, dict[str, Any]]:
    """Name and data of a block: its top frame, state, pool and innermost frames."""
    data: dict[str, Any] = {"state": _STATES[state], "pool": pool}
    if stack < 0 or state == INACTIVE:
        return None, data
    lines = tables.stacks.lines(stack)
    frames = [line for line in lines if ".py:" in line or "(<" in line] or list(lines)
    return frames[0], data | {"frames": frames[:MAX_FRAMES]}


def _settings(value: Any) -> dict[str, Any]:
    """The allocator's settings that are plain values."""
    if not isinstance(value, dict):
        return {}
    return {key: item for key, item in value.items() if type(item) in _PLAIN}
