"""A snapshot as lines of text: its map, its free memory, who holds what, growth, the peak."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memscope.analysis.diagnosis.snapshot.analysis import SnapshotAnalysis
from memscope.analysis.memory_map.block_map import LEGEND, block_map
from memscope.analysis.memory_map.fragmentation import Bucket
from memscope.analysis.memory_map.holders import NO_STACK, Holder, count_blocks, name_stream
from memscope.analysis.memory_map.memory_map import MemoryMap
from memscope.units import format_bytes

_MOST = 5
_NAME = 100


def snapshot_report(found: SnapshotAnalysis) -> list[str]:
    """The report, blocks apart by empty lines."""
    moment = "" if found.oom is None else " when the request failed"
    blocks = (
        [f"segments{moment} ({LEGEND})", *block_map(_shown(found))],
        ["free memory by pool and stream, as dumped", *_buckets(found)],
        ["who pins free memory", *_pins(found)],
        [f"who held memory{moment}, by call stack", *_holders(found.stack_holders)],
        [f"who held memory{moment}, by label", *_holders(found.label_holders)],
        ["growth", *_growth(found)],
        ["the peak within the history", *_peak(found)],
    )
    lines: list[str] = []
    for block in blocks:
        if len(block) > 1:
            lines += [*([""] if lines else []), block[0], *(f"  {line}" for line in block[1:])]
    return lines


def _shown(found: SnapshotAnalysis) -> MemoryMap:
    return found.memory if found.oom is None else found.oom.memory


def _buckets(found: SnapshotAnalysis) -> Iterable[str]:
    for bucket in found.buckets[: 2 * _MOST]:
        free = f"{format_bytes(bucket.free_bytes)} free"
        if bucket.free_bytes:
            free += (
                f" (largest {format_bytes(bucket.largest_free_bytes)}, "
                f"{format_bytes(bucket.pinned_bytes)} pinned)"
            )
        if bucket.pending_bytes:
            free += f", {format_bytes(bucket.pending_bytes)} pending"
        yield (
            f"{_bucket_name(found, bucket)}: {format_bytes(bucket.reserved_bytes)} in "
            f"{_segments(bucket.segments)}, {free}, fragmentation external "
            f"{_percent(bucket.external)}, internal {_percent(bucket.internal)}"
        )
    rest = found.buckets[2 * _MOST :]
    if rest:
        size = sum(bucket.reserved_bytes for bucket in rest)
        yield f"{len(rest):,} more, {format_bytes(size)}"


def _bucket_name(found: SnapshotAnalysis, bucket: Bucket) -> str:
    kind = "small" if bucket.is_small else "large"
    pool = "default pool" if not bucket.is_private else f"private pool {found.pools[bucket.pool]}"
    return f"{pool}, {name_stream(bucket.stream)}, {kind}"


def _segments(count: int) -> str:
    return f"{count:,} segment" if count == 1 else f"{count:,} segments"


def _percent(ratio: float | None) -> str:
    return "none" if ratio is None else f"{ratio:.1%}"


def _pins(found: SnapshotAnalysis) -> Iterable[str]:
    for pin in found.pins:
        known = [holder.name for holder in pin.holders if holder.name != NO_STACK]
        who = f", most from {known[0][:_NAME]}" if known else ""
        yield (
            f"{format_bytes(pin.free_bytes)} of a segment of {format_bytes(pin.bytes)}, by "
            f"{count_blocks(pin.live_blocks)} of {format_bytes(pin.live_bytes)}{who}"
        )


def _holders(holders: Sequence[Holder]) -> Iterable[str]:
    for holder in holders[:_MOST]:
        size = f"{format_bytes(holder.bytes):>9} in {count_blocks(holder.blocks)}"
        yield f"{size}  {holder.name[:_NAME]}"


def _growth(found: SnapshotAnalysis) -> Iterable[str]:
    growth = found.growth
    if growth is None:
        return
    yield (
        f"{format_bytes(growth.bytes_per_step)} a step over {growth.steps:,} steps, known by "
        f"{growth.source}; {format_bytes(growth.grown_bytes)} since the second step"
    )
    if growth.is_growing:
        yield from _holders(growth.holders)


def _peak(found: SnapshotAnalysis) -> Iterable[str]:
    if found.peak is None:
        return
    yield (
        f"{format_bytes(found.peak.bytes)} allocated, after event {found.peak.event:,} of "
        f"{found.counts.events:,}; alive then:"
    )
    yield from _holders(found.peak.holders)
