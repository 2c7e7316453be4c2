"""The trace of a snapshot: what the allocator did, one value an event, oldest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memscope.interop.snapshot_values import (
    MAX_TEXT,
    Budget,
    Names,
    PoolId,
    Stacks,
    damaged,
    harmless,
    numbers,
    pool_ids,
    stack_ids,
    texts,
)

Numbers = npt.NDArray[np.int64]

ALLOC, FREE_REQUESTED, FREE_COMPLETED = 0, 1, 2
SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP = 3, 4, 5, 6
OOM, OTHER = 7, 8
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
    stack: Numbers
    label: Numbers
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
    actions = texts(entries, "action", "event", "")
    trace = Trace(
        action=np.array([_ACTIONS.get(name, OTHER) for name in actions], dtype=np.int64),
        address=numbers(entries, "addr", "event", -1, is_address=True),
        bytes=numbers(entries, "size", "event", 0),
        stream=numbers(entries, "stream", "event", 0, is_address=True),
        time_us=numbers(entries, "time_us", "event", -1, is_address=True),
        device_free=numbers(entries, "device_free", "event", -1),
        pool=pool_ids(entries, "pool_id", pools, missing=-1),
        stack=stack_ids((each.get("frames") for each in entries), stacks, budget),
        label=np.array([_label(each, labels) for each in entries], dtype=np.int64),
        labels=labels.values,
    )
    _check_addresses(trace)
    return trace


def _label(entry: dict[str, Any], labels: Names[str]) -> int:
    value = entry.get("user_metadata")
    return labels.code(harmless(value[:MAX_TEXT])) if type(value) is str and value else 0


def _check_addresses(trace: Trace) -> None:
    needs_address = (trace.action != OOM) & (trace.action != OTHER)
    if (needs_address & (trace.address < 0)).any():
        raise damaged("has an event without an address")
