"""Compare two memory snapshots: metrics, and memory by call stack, label and stream."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO, Any

from memscope.analysis.comparison.difference import Change, Compared, Difference
from memscope.errors import MemscopeError
from memscope.interop.snapshot.guarded import examine

_TARGET = "memscope.analysis.comparison.snapshots:measure_stream"
MOST_GROUPS = 10_000
REST = "all others"
NO_HISTORY = "the snapshot has no history, so the peak is not known"

Groups = Mapping[str, Any]


def diff_snapshots(before: str | os.PathLike[str], after: str | os.PathLike[str]) -> Difference:
    """The second snapshot minus the first, over all devices. Raises MemscopeError."""
    first, second = examine(_TARGET, before), examine(_TARGET, after)
    return compare(first, second)


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> Difference:
    """Compare two results of ``measure_stream``."""
    old, new = first["metrics"], second["metrics"]
    metrics = [
        Change(name, old[name], new[name], "bytes", _missing(old[name], new[name])) for name in old
    ]
    metrics.sort(key=lambda change: -(change.value or 0))
    return Difference(
        kind=Compared.SNAPSHOTS,
        metrics=tuple(metrics),
        holders={
            key: _changes(first["holders"][key], second["holders"][key]) for key in first["holders"]
        },
    )


def measure_stream(stream: IO[bytes], size: int) -> dict[str, Any]:
    """Metrics of a snapshot and its live bytes by holder. Runs in a child process."""
    from memscope.analysis.diagnosis.snapshot.analysis import analyse_snapshot
    from memscope.interop.snapshot.snapshot import read_snapshot

    snapshot = read_snapshot(stream, size)
    if not snapshot.devices:
        raise MemscopeError(
            "holds no memory and no events.", "Dump a snapshot while the program runs."
        )
    found = [analyse_snapshot(snapshot, device) for device in snapshot.devices]
    peaks = [each.peak.bytes if each.peak else None for each in found]
    totals = {
        "reserved_bytes": [each.reserved_bytes for each in found],
        "allocated_bytes": [each.allocated_bytes for each in found],
        "active_bytes": [each.active_bytes for each in found],
        "pending_free_bytes": [each.pending_bytes for each in found],
        "private_pool_free_bytes": [each.private_free_bytes for each in found],
        "pinned_free_bytes": [each.pinned_bytes for each in found],
    }
    known = [peak for peak in peaks if peak is not None]
    return {
        "metrics": {
            "peak_bytes": sum(known) if known else None,
            **{name: sum(values) for name, values in totals.items()},
        },
        "holders": {
            "stack": _stack_groups(found),
            "label": _named_groups(found, "label"),
            "stream": _named_groups(found, "stream"),
        },
    }


def _stack_groups(found: list[Any]) -> dict[str, int]:
    from memscope.analysis.memory_map.holders import by_stack

    groups: dict[str, int] = {}
    for each in found:
        for holder in by_stack(each.memory, each.stacks, MOST_GROUPS):
            key = " < ".join(holder.frames) or holder.name
            groups[key] = groups.get(key, 0) + holder.bytes
    return _with_rest(groups, sum(each.active_bytes for each in found))


def _named_groups(found: list[Any], by: str) -> dict[str, int]:
    from memscope.analysis.memory_map.holders import by_label, by_stream

    make = by_label if by == "label" else by_stream
    groups: dict[str, int] = {}
    for each in found:
        for holder in make(each.memory, MOST_GROUPS):
            groups[holder.name] = groups.get(holder.name, 0) + holder.bytes
    return _with_rest(groups, sum(each.active_bytes for each in found)) if groups else {}


def _with_rest(groups: dict[str, int], total: int) -> dict[str, int]:
    rest = total - sum(groups.values())
    return {**groups, REST: rest} if rest > 0 else groups


def _changes(before: Groups, after: Groups) -> tuple[Change, ...]:
    """The groups that changed, the largest growth first."""
    names = dict.fromkeys([*after, *before])
    changes = [Change(name, before.get(name, 0), after.get(name, 0), "bytes") for name in names]
    changed = [change for change in changes if change.value]
    return tuple(sorted(changed, key=lambda change: -(change.value or 0)))


def _missing(before: int | None, after: int | None) -> str | None:
    return NO_HISTORY if before is None or after is None else None
