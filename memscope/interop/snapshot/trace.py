"""The trace of a snapshot: what the allocator did, one value an event, oldest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memscope.interop.snapshot.values import (
    Budget,
    Names,
    PoolId,
    Stacks,
    damaged,
    label_ids,
    numbers,
    pool_ids,
    stack_ids,
    texts,
)

Numbers = npt.NDArray[np.int64]

ALLOC, FREE_REQUESTED, FREE_COMPLETED = 0, 1, 2
SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP = 3, 4, 5, 6
OOM, OTHER = 7, 8
CHUNK_EVENTS = 4096
_ACTIONS = {
    "alloc": ALLOC,
    "free_requested": FREE_REQUESTED,
    "free_completed": FREE_COMPLETED,
    "free": FREE_COMPLETED,
    "segment_alloc": SEGMENT_ALLOC,
    "segment_free": SEGMENT_FREE,
    "segment_map": SEGMENT_MAP,
    "segment_unmap": SEGMENT_UNMAP,
    "oom": OOM,
}


@dataclass(frozen=True, slots=True)
class Trace:
    """Events of one device.

    ``bytes``: as requested, not rounded (an oom: as rounded). ``time_us``: −1 before torch 2.2.
    ``device_free``: of an oom, what the driver had left once the cache was given back, else −1.
    ``pool``: a number into ``Snapshot.pools``, −1 where the event does not say (before torch 2.12).
    ``label``: a number into ``labels``, the user's own metadata; 0 is none.
    """

    action: Numbers
    address: Numbers
    bytes: Numbers
    stream: Numbers
    time_us: Numbers
    device_free: Numbers
    pool: Numbers
    label: Numbers
    stack: Numbers
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.action)

    def where(self, *actions: int) -> Numbers:
        """Row numbers of events of these actions."""
        return np.flatnonzero(np.isin(self.action, actions))


def read_trace(
    entries: list[dict[str, Any]], stacks: Stacks, pools: Names[PoolId], budget: Budget
) -> Trace:
    """The trace of checked dicts. Raises MemscopeError where an event cannot be."""
    labels = Names[str](first="")
    frames: list[Any] = []
    parts: list[tuple[Numbers, ...]] = []
    # A few thousand events at a time stay in the processor's cache while their columns are taken.
    for start in range(0, len(entries), CHUNK_EVENTS):
        chunk = entries[start : start + CHUNK_EVENTS]
        frames += [each.get("frames") for each in chunk]
        parts.append(_read_columns(chunk, pools, labels))
    action, address, size, stream, time_us, device_free, pool, label = (
        np.concatenate(part) for part in zip(*parts, strict=True)
    )
    trace = Trace(
        action=action,
        address=address,
        bytes=size,
        stream=stream,
        time_us=time_us,
        device_free=device_free,
        pool=pool,
        label=label,
        stack=stack_ids(frames, stacks, budget),
        labels=labels.values,
    )
    _check_addresses(trace)
    return trace


def _read_columns(
    chunk: list[dict[str, Any]], pools: Names[PoolId], labels: Names[str]
) -> tuple[Numbers, ...]:
    """All columns but the stacks, in the order of Trace's fields."""
    action = np.array(
        [_ACTIONS.get(name, OTHER) for name in texts(chunk, "action", "event")],
        dtype=np.int64,
    )
    device_free = np.full(len(chunk), -1, dtype=np.int64)
    ooms = np.flatnonzero(action == OOM)
    if len(ooms):
        rows = [chunk[row] for row in ooms.tolist()]
        device_free[ooms] = numbers(rows, "device_free", "event", -1)
    return (
        action,
        numbers(chunk, "addr", "event", -1, is_address=True),
        numbers(chunk, "size", "event", 0),
        numbers(chunk, "stream", "event", 0, is_address=True),
        numbers(chunk, "time_us", "event", -1, is_address=True),
        device_free,
        pool_ids(chunk, "pool_id", pools, missing=-1),
        label_ids([each.get("user_metadata") for each in chunk], labels),
    )


def _check_addresses(trace: Trace) -> None:
    needs_address = (trace.action != OOM) & (trace.action != OTHER)
    if (needs_address & (trace.address < 0)).any():
        raise damaged("has an event without an address")
    if float(trace.bytes.sum(dtype=np.float64)) >= 1 << 62:
        raise damaged("has events whose sizes cannot be")
