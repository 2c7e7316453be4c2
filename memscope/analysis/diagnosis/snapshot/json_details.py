"""The numbers of a snapshot as JSON. Counters have torch's names."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from memscope.analysis.diagnosis.snapshot.analysis import SnapshotAnalysis
from memscope.analysis.memory_map.fragmentation import Bucket


def snapshot_details(analysis: SnapshotAnalysis) -> dict[str, Any]:
    """The numbers by name, None if the file does not say."""
    oom, growth, peak, counts = analysis.oom, analysis.growth, analysis.peak, analysis.counts
    is_growing = growth is not None and growth.is_growing
    return {
        "torch": None,
        "torch_since": analysis.schema,
        "is_expandable": analysis.is_expandable,
        "active_bytes": analysis.active_bytes,
        "inactive_split_bytes": analysis.inactive_split_bytes,
        "requested_counter_bytes": analysis.requested_bytes,
        "num_ooms": counts.ooms,
        # Torch retries each failure once after a flush. Successful retries leave no event.
        "num_alloc_retries": counts.ooms,
        "num_device_alloc": counts.device_allocs,
        "num_device_free": counts.device_frees,
        "pending_free_bytes": analysis.pending_bytes,
        "private_pool_free_bytes": analysis.private_free_bytes,
        "free_in_segments_bytes": analysis.free_bytes,
        "pinned_free_bytes": analysis.pinned_bytes,
        "releasable_bytes": analysis.releasable_bytes,
        "largest_free_block_bytes": oom.largest_free_bytes if oom else analysis.largest_free_bytes,
        "fragmentation": {"external": analysis.external, "internal": analysis.internal},
        "growth_bytes_per_step": round(growth.bytes_per_step) if growth else None,
        "steps": growth.steps if growth else None,
        "is_growing": is_growing,
        "steps_from": growth.source if growth else None,
        "growth_holders": [asdict(holder) for holder in growth.holders] if growth else [],
        "oom": _oom(analysis),
        "peak": asdict(peak) if peak else None,
        "buckets": [_bucket(analysis, bucket) for bucket in analysis.buckets],
        "pins": [asdict(pin) for pin in analysis.pins],
        "holders": {
            "stack": [asdict(holder) for holder in analysis.stack_holders],
            "label": [asdict(holder) for holder in analysis.label_holders],
            "stream": [asdict(holder) for holder in analysis.stream_holders],
        },
        "trace_events": counts.events,
        "untraced_blocks": counts.ghost_blocks,
        "untraced_bytes": counts.ghost_bytes,
        "devices": list(analysis.devices),
    }


def _bucket(analysis: SnapshotAnalysis, bucket: Bucket) -> dict[str, Any]:
    return {
        **asdict(bucket),
        "pool": list(analysis.pools[bucket.pool]),
        "is_private": bucket.is_private,
        "pinned_bytes": bucket.pinned_bytes,
        "external": bucket.external,
        "internal": bucket.internal,
    }


def _oom(analysis: SnapshotAnalysis) -> dict[str, Any] | None:
    oom = analysis.oom
    if oom is None:
        return None
    return {
        "event": oom.event,
        "requested_bytes": oom.requested_bytes,
        "segment_bytes": oom.segment_bytes,
        "device_free_bytes": oom.device_free_bytes,
        "has_hidden_limit": oom.has_hidden_limit,
        "stream": oom.stream,
        "pool": list(analysis.pools[oom.pool]),
        "reserved_bytes": oom.memory.reserved_bytes,
        "free_bytes": oom.free_bytes,
        "pending_bytes": oom.pending_bytes,
        "private_free_bytes": oom.private_free_bytes,
        "largest_free_bytes": oom.largest_free_bytes,
        "missing_bytes": oom.missing_bytes,
        "frames": list(analysis.stacks.lines(oom.stack))[:12],
    }
