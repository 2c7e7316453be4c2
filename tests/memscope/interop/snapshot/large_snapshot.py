"""A large snapshot, made by a script.

    python -m tests.memscope.interop.snapshot.large_snapshot FILE [MB]

Events as torch writes them: stacks of 20 frames shared between an allocation and its free, frames
shared between stacks. 1,000 MB are about 6 million events.
"""

from __future__ import annotations

import pickle
import random
import sys
import time
from pathlib import Path
from typing import Any

BYTES_PER_EVENT = 121
_BLOCK = 2 << 20
_BASE = 0x7F0000000000
_SLOTS = 4096


def write_large_snapshot(path: Path, size: int, *, pool_id: bool = True) -> int:
    """Write about ``size`` bytes; the number of events."""
    chance = random.Random(7)
    frames = [
        {
            "name": f"function_{number}",
            "filename": f"/srv/model/part_{number % 40}.py",
            "line": number,
        }
        for number in range(400)
    ]
    stacks = [chance.sample(frames, 20) for _ in range(2000)]
    events = size // BYTES_PER_EVENT
    trace: list[dict[str, Any]] = []
    live: dict[int, list[Any]] = {}
    for number in range(events):
        slot = chance.randrange(_SLOTS)
        address, now = _BASE + slot * _BLOCK, 1_700_000_000_000_000 + number * 3
        stack = live.pop(slot, None)
        if stack is None:
            stack = live[slot] = list(stacks[chance.randrange(len(stacks))])
            trace.append(_event("alloc", address, stack, now, number, pool_id))
        else:
            trace.append(_event("free_requested", address, stack, now, number, pool_id))
            trace.append(_event("free_completed", address, stack, now, number, pool_id))
        if len(trace) >= events:
            break
    data = {
        "segments": [_segment(live)],
        "device_traces": [trace],
        "allocator_settings": {"max_split_size": -1},
        "external_annotations": [],
    }
    with path.open("wb") as stream:
        pickle.dump(data, stream, protocol=4)
    return len(trace)


def _event(
    action: str, address: int, stack: list[Any], now: int, number: int, pool_id: bool
) -> dict[str, Any]:
    event = {
        "action": action,
        "addr": address,
        "size": _BLOCK,
        "stream": 0,
        "time_us": now,
        "compile_context": "N/A",
        "user_metadata": f"step {number // 10_000}",
        "frames": stack,
    }
    return event | ({"pool_id": (0, 0)} if pool_id else {})


def _segment(live: dict[int, list[Any]]) -> dict[str, Any]:
    blocks = [
        {
            "address": _BASE + slot * _BLOCK,
            "size": _BLOCK,
            "requested_size": _BLOCK if slot in live else 0,
            "state": "active_allocated" if slot in live else "inactive",
            "frames": live.get(slot, []),
        }
        for slot in range(_SLOTS)
    ]
    return {
        "device": 0,
        "address": _BASE,
        "total_size": _SLOTS * _BLOCK,
        "allocated_size": len(live) * _BLOCK,
        "active_size": len(live) * _BLOCK,
        "requested_size": len(live) * _BLOCK,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


def measure(path: Path) -> None:
    """Explain the file, and say what that took."""
    import resource

    from memscope.analysis.diagnosis.snapshot.explain import explain_snapshot

    started = time.perf_counter()
    found = explain_snapshot(path)
    seconds = time.perf_counter() - started
    size = path.stat().st_size
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    events = found.to_json()["trace_events"]
    print(
        f"{size / 1e6:,.0f} MB, {events:,} events: {seconds:.1f} s, {peak / 1e6:,.0f} MB "
        f"({peak / size:.1f} x its size)"
    )


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write_large_snapshot(target, int(sys.argv[2] if len(sys.argv) > 2 else "1000") * 1_000_000)
    measure(target)
