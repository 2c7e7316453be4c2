"""A snapshot as lines of text: map, free memory, holders, growth and peak."""

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


def snapshot_report(analysis: SnapshotAnalysis) -> list[str]:
    """The report. Empty lines separate its sections."""
    moment = "" if analysis.oom is None else " when the request failed"
    blocks = (
        [f"segments{moment} ({LEGEND})", *block_map(_shown(analysis))],
        ["free memory by pool and stream, at the dump", *_buckets(analysis)],
        ["blocks that pin free memory", *_pins(analysis)],
        [f"largest holders{moment}, by call stack", *_holders(analysis.stack_holders)],
        [f"largest holders{moment}, by label", *_holders(analysis.label_holders)],
        ["growth", *_growth(analysis)],
        ["peak within the history", *_peak(analysis)],
    )
    lines: list[str] = []
    for block in blocks:
        if len(block) > 1:
            lines += [*([""] if lines else []), block[0], *(f"  {line}" for line in block[1:])]
    return lines


def _shown(analysis: SnapshotAnalysis) -> MemoryMap:
    return analysis.memory if analysis.oom is None else analysis.oom.memory


def _buckets(analysis: SnapshotAnalysis) -> Iterable[str]:
    for bucket in analysis.buckets[: 2 * _MOST]:
        free = f"{format_bytes(bucket.free_bytes)} free"
        if bucket.free_bytes:
            free += (
                f" (largest {format_bytes(bucket.largest_free_bytes)}, "
                f"{format_bytes(bucket.pinned_bytes)} pinned)"
            )
        if bucket.pending_bytes:
            free += f", {format_bytes(bucket.pending_bytes)} pending"
        yield (
            f"{_bucket_name(analysis, bucket)}: {format_bytes(bucket.reserved_bytes)} in "
            f"{_segments(bucket.segments)}, {free}, fragmentation external "
            f"{_percent(bucket.external)}, internal {_percent(bucket.internal)}"
        )
    rest = analysis.buckets[2 * _MOST :]
    if rest:
        size = sum(bucket.reserved_bytes for bucket in rest)
        yield f"{len(rest):,} more, {format_bytes(size)}"


def _bucket_name(analysis: SnapshotAnalysis, bucket: Bucket) -> str:
    kind = "small" if bucket.is_small else "large"
    pool = f"private pool {analysis.pools[bucket.pool]}" if bucket.is_private else "default pool"
    return f"{pool}, {name_stream(bucket.stream)}, {kind}"


def _segments(count: int) -> str:
    return f"{count:,} segment" if count == 1 else f"{count:,} segments"


def _percent(ratio: float | None) -> str:
    return "none" if ratio is None else f"{ratio:.1%}"


def _pins(analysis: SnapshotAnalysis) -> Iterable[str]:
    for pin in analysis.pins:
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


def _growth(analysis: SnapshotAnalysis) -> Iterable[str]:
    growth = analysis.growth
    if growth is None:
        return
    yield (
        f"{format_bytes(growth.bytes_per_step)} a step over {growth.steps:,} steps "
        f"({growth.source}), {format_bytes(growth.grown_bytes)} since the second step"
    )
    if growth.is_growing:
        yield from _holders(growth.holders)


def _peak(analysis: SnapshotAnalysis) -> Iterable[str]:
    if analysis.peak is None:
        return
    yield (
        f"{format_bytes(analysis.peak.bytes)} allocated, after event {analysis.peak.event:,} of "
        f"{analysis.counts.events:,}, by:"
    )
    yield from _holders(analysis.peak.holders)
