"""The numbers of a snapshot as JSON. Counters have the names that torch and its cases give them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from memscope.analysis.diagnosis.snapshot.analysis import SnapshotAnalysis
from memscope.analysis.memory_map.fragmentation import Bucket


def snapshot_details(found: SnapshotAnalysis) -> dict[str, Any]:
    """Numbers by name; null where the file does not say."""
    oom, growth, peak, counts = found.oom, found.growth, found.peak, found.counts
    is_growing = growth is not None and growth.is_growing
    return {
        "torch": None,
        "torch_since": found.schema,
        "is_expandable": found.is_expandable,
        "active_bytes": found.active_bytes,
        "inactive_split_bytes": found.inactive_split_bytes,
        "requested_counter_bytes": found.requested_bytes,
        "num_ooms": counts.ooms,
        # Each failure was retried once after a flush; retries that succeeded leave no event.
        "num_alloc_retries": counts.ooms,
        "num_device_alloc": counts.device_allocs,
        "num_device_free": counts.device_frees,
        "pending_free_bytes": found.pending_bytes,
        "private_pool_free_bytes": found.private_free_bytes,
        "free_in_segments_bytes": found.free_bytes,
        "pinned_free_bytes": found.pinned_bytes,
        "releasable_bytes": found.releasable_bytes,
        "largest_free_block_bytes": oom.largest_free_bytes if oom else found.largest_free_bytes,
        "fragmentation": {"external": found.external, "internal": found.internal},
        "growth_bytes_per_step": round(growth.bytes_per_step) if growth else None,
        "steps": growth.steps if growth else None,
        "is_growing": is_growing,
        "steps_from": growth.source if growth else None,
        "growth_holders": [asdict(holder) for holder in growth.holders] if growth else [],
        "oom": _oom(found),
        "peak": asdict(peak) if peak else None,
        "buckets": [_bucket(found, bucket) for bucket in found.buckets],
        "pins": [asdict(pin) for pin in found.pins],
        "holders": {
            "stack": [asdict(holder) for holder in found.stack_holders],
            "label": [asdict(holder) for holder in found.label_holders],
            "stream": [asdict(holder) for holder in found.stream_holders],
        },
        "trace_events": counts.events,
        "untraced_blocks": counts.ghost_blocks,
        "untraced_bytes": counts.ghost_bytes,
        "devices": list(found.devices),
    }


def _bucket(found: SnapshotAnalysis, bucket: Bucket) -> dict[str, Any]:
    return {
        **asdict(bucket),
        "pool": list(found.pools[bucket.pool]),
        "is_private": bucket.is_private,
        "pinned_bytes": bucket.pinned_bytes,
        "external": bucket.external,
        "internal": bucket.internal,
    }


def _oom(found: SnapshotAnalysis) -> dict[str, Any] | None:
    oom = found.oom
    if oom is None:
        return None
    return {
        "event": oom.event,
        "requested_bytes": oom.requested_bytes,
        "segment_bytes": oom.segment_bytes,
        "device_free_bytes": oom.device_free_bytes,
        "has_hidden_limit": oom.has_hidden_limit,
        "stream": oom.stream,
        "pool": list(found.pools[oom.pool]),
        "reserved_bytes": oom.memory.reserved_bytes,
        "free_bytes": oom.free_bytes,
        "pending_bytes": oom.pending_bytes,
        "private_free_bytes": oom.private_free_bytes,
        "largest_free_bytes": oom.largest_free_bytes,
        "missing_bytes": oom.missing_bytes,
        "frames": list(found.stacks.lines(oom.stack))[:12],
    }
