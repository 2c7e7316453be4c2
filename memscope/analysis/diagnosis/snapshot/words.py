"""What a snapshot shows, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memscope.analysis.diagnosis.explanation import Diagnosis
from memscope.analysis.diagnosis.snapshot.analysis import SnapshotAnalysis
from memscope.analysis.diagnosis.snapshot.oom_moment import OomMoment
from memscope.analysis.memory_map.holders import NO_STACK, Holder, count_blocks, name_stream
from memscope.units import format_bytes


def why(analysis: SnapshotAnalysis) -> str:
    """The diagnosis, with the numbers behind it."""
    if analysis.oom is None:
        return _QUIET[analysis.diagnosis](analysis)
    reason = _REASONS[analysis.diagnosis or Diagnosis.UNKNOWN]
    return f"{_asked(analysis.oom)} {reason(analysis, analysis.oom)}"


def evidence(analysis: SnapshotAnalysis, diagnosis: Diagnosis) -> str:
    """What the map shows about an error that is described elsewhere; "" if nothing."""
    make = _REASONS.get(diagnosis)
    return make(analysis, analysis.oom) if make and analysis.oom is not None else ""


def largest_holder(analysis: SnapshotAnalysis) -> str:
    """The largest holder, as a sentence; "" if unknown."""
    return _largest_holder(analysis).strip()


def notes(analysis: SnapshotAnalysis) -> tuple[str, ...]:
    """Further facts that a reader should know."""
    growth = analysis.growth
    lines = (
        _hidden_limit(analysis.oom)
        if analysis.oom and analysis.diagnosis is not Diagnosis.MEMORY_FRACTION
        else None,
        _other_streams(analysis.oom) if analysis.oom else None,
        _growth_note(analysis) if growth and analysis.diagnosis is not Diagnosis.GROWTH else None,
        _both_settings(analysis),
        _ghosts(analysis),
        f"{analysis.counts.ooms} allocations failed in the trace. This explains the last one."
        if analysis.counts.ooms > 1
        else None,
        f"The file contains devices {', '.join(map(str, analysis.devices))}. This is device "
        f"{analysis.device}."
        if len(analysis.devices) > 1
        else None,
    )
    return tuple(line for line in lines if line)


def unknown(analysis: SnapshotAnalysis) -> tuple[str, ...]:
    """What the file does not contain."""
    lines = ["the card's size, and what other programs and libraries hold: not in any snapshot"]
    if not analysis.counts.events:
        lines.append(
            "what happened before: no history was recorded "
            "(torch.cuda.memory._record_memory_history)"
        )
    if analysis.oom and analysis.oom.device_free_bytes is None:
        lines.append("what the driver had left when the request failed")
    if not any(holder.frames for holder in analysis.stack_holders) and analysis.allocated_bytes:
        lines.append("who allocated what: no call stacks were recorded")
    return tuple(lines)


def _asked(oom: OomMoment) -> str:
    free = oom.device_free_bytes
    left = "" if free is None else f", and the driver had {format_bytes(free)} left"
    return (
        f"{format_bytes(oom.requested_bytes)} was requested on {name_stream(oom.stream)}{left}. "
        f"PyTorch held {format_bytes(oom.memory.reserved_bytes)}, "
        f"{format_bytes(oom.free_bytes)} of it free."
    )


def _fragmented(analysis: SnapshotAnalysis, oom: OomMoment) -> str:
    if oom.has_fitting_block:
        return (
            f"There was a free block of {format_bytes(oom.largest_free_bytes)}, but max_split_size "
            f"({format_bytes(oom.max_split_bytes)}) reserves it for larger requests."
        )
    pinned = analysis.pins[0] if analysis.pins else None
    who = (
        f" A segment of {format_bytes(pinned.bytes)} is pinned by "
        f"{count_blocks(pinned.live_blocks)} ({format_bytes(pinned.live_bytes)})"
        f"{_most_from(pinned.holders)}."
        if pinned and pinned.holders
        else ""
    )
    largest = oom.largest_free_bytes
    reason = (
        f"no single block is large enough: the largest usable one has {format_bytes(largest)}"
        if largest
        else f"{name_stream(oom.stream)} can use none of it"
    )
    return f"Enough is free, but {reason}.{who}"


def _short(analysis: SnapshotAnalysis, oom: OomMoment) -> str:
    more = ""
    if oom.requested_bytes > oom.most_ever_bytes and oom.device_free_bytes is not None:
        more = (
            f" Even without any tensor, at most {format_bytes(oom.most_ever_bytes)} was available: "
            "the request is larger than the card, or something outside PyTorch holds the rest."
        )
    return (
        f"Free and cached memory together lacked {format_bytes(oom.missing_bytes)}.{more}"
        f"{_largest_holder(analysis)}"
    )


def _limited(analysis: SnapshotAnalysis, oom: OomMoment) -> str:
    held = oom.memory.reserved_bytes
    return (
        "The driver had enough, so there was a limit that the file does not contain, most likely a "
        f"memory fraction of {format_bytes(held)} to {format_bytes(held + oom.segment_bytes)}. "
        f"Inside it, {format_bytes(oom.missing_bytes)} was missing.{_largest_holder(analysis)}"
    )


def _pending(analysis: SnapshotAnalysis, oom: OomMoment) -> str:
    return (
        f"{format_bytes(oom.pending_bytes)} was already freed and would have been enough, but "
        "another stream may still use it (record_stream)."
    )


def _private(analysis: SnapshotAnalysis, oom: OomMoment) -> str:
    return (
        f"{format_bytes(oom.private_free_bytes)} is free inside private pools (CUDA graphs, "
        "MemPool), but only for requests from inside them."
    )


def _grown(analysis: SnapshotAnalysis, oom: OomMoment) -> str:
    return f"Without what the steps kept it would have fitted: {_growth_amounts(analysis)}."


def _too_large(analysis: SnapshotAnalysis, oom: OomMoment) -> str:
    return "No card has that much memory: the request itself is wrong."


def _unclear(analysis: SnapshotAnalysis, oom: OomMoment) -> str:
    if not oom.requested_bytes:
        return "The event does not say how much was requested."
    return (
        f"This map has a free block of {format_bytes(oom.largest_free_bytes)} for it. The file "
        "does not say why the allocator did not use it (pytorch issue 189504: a free that "
        "completes during the call is missed; a second try succeeds)."
    )


_REASONS: dict[str, Callable[[SnapshotAnalysis, OomMoment], str]] = {
    Diagnosis.FRAGMENTATION: _fragmented,
    Diagnosis.SHORTAGE: _short,
    Diagnosis.MEMORY_FRACTION: _limited,
    Diagnosis.PENDING_FREES: _pending,
    Diagnosis.PRIVATE_POOLS: _private,
    Diagnosis.GROWTH: _grown,
    Diagnosis.REQUEST_TOO_LARGE: _too_large,
    Diagnosis.UNKNOWN: _unclear,
}


def _nothing_wrong(analysis: SnapshotAnalysis) -> str:
    return f"No allocation failed, and nothing looks wrong: {_held(analysis)}."


def _quiet_growth(analysis: SnapshotAnalysis) -> str:
    return f"No allocation failed yet, but {_growth_amounts(analysis)}."


def _quiet_pending(analysis: SnapshotAnalysis) -> str:
    return (
        f"No allocation failed, but {format_bytes(analysis.pending_bytes)} of "
        f"{format_bytes(analysis.reserved_bytes)} reserved is freed and waits for another stream."
    )


def _quiet_private(analysis: SnapshotAnalysis) -> str:
    return (
        f"No allocation failed, but {format_bytes(analysis.private_free_bytes)} of "
        f"{format_bytes(analysis.reserved_bytes)} reserved is free only inside private pools."
    )


def _quiet_fragmentation(analysis: SnapshotAnalysis) -> str:
    return (
        f"No allocation failed, but {format_bytes(analysis.pinned_bytes)} of "
        f"{format_bytes(analysis.reserved_bytes)} reserved is free in segments that live blocks "
        f"pin. The largest free block is {format_bytes(analysis.largest_free_bytes)}."
    )


_QUIET: dict[str | None, Callable[[SnapshotAnalysis], str]] = {
    None: _nothing_wrong,
    Diagnosis.GROWTH: _quiet_growth,
    Diagnosis.PENDING_FREES: _quiet_pending,
    Diagnosis.PRIVATE_POOLS: _quiet_private,
    Diagnosis.FRAGMENTATION: _quiet_fragmentation,
}


def _held(analysis: SnapshotAnalysis) -> str:
    return (
        f"{format_bytes(analysis.allocated_bytes)} of {format_bytes(analysis.reserved_bytes)} "
        "reserved is allocated, and the largest free block is "
        f"{format_bytes(analysis.largest_free_bytes)}"
    )


def _growth_amounts(analysis: SnapshotAnalysis) -> str:
    growth = analysis.growth
    assert growth is not None
    keeper = f", most of it from {growth.holders[0].name}" if growth.holders else ""
    return (
        f"allocated memory grows by {format_bytes(growth.bytes_per_step)} a step over "
        f"{growth.steps:,} steps ({growth.source}){keeper}"
    )


def _largest_holder(analysis: SnapshotAnalysis) -> str:
    known = [holder for holder in analysis.stack_holders if holder.name != NO_STACK]
    if not known:
        return ""
    first = known[0]
    return f" The largest holder is {first.name} with {format_bytes(first.bytes)}."


def _most_from(holders: Sequence[Holder]) -> str:
    known = [holder.name for holder in holders if holder.name != NO_STACK]
    return f", most from {known[0]}" if known else ""


def _hidden_limit(oom: OomMoment) -> str | None:
    if not oom.has_hidden_limit or oom.device_free_bytes is None:
        return None
    return (
        f"The driver had {format_bytes(oom.device_free_bytes)} free, more than was requested. So "
        "there was a limit that the file does not contain (a memory fraction, or the system's)."
    )


def _other_streams(oom: OomMoment) -> str | None:
    free = sum(bucket.free_bytes for bucket in oom.own if bucket.stream != oom.stream)
    if free < max(oom.requested_bytes // 4, 1):
        return None
    return (
        f"{format_bytes(free)} of the free memory belongs to other streams; this stream cannot use "
        "it."
    )


def _growth_note(analysis: SnapshotAnalysis) -> str | None:
    growth = analysis.growth
    if growth is None or not growth.is_growing:
        return None
    sizes_bytes = _growth_amounts(analysis)
    return f"{sizes_bytes[0].upper()}{sizes_bytes[1:]}."


def _both_settings(analysis: SnapshotAnalysis) -> str | None:
    split = analysis.settings.get("max_split_size")
    if not analysis.is_expandable or type(split) is not int or split <= 0:
        return None
    return (
        "expandable_segments and max_split_size_mb are both set. Together they let reserved memory "
        "grow for nothing (pytorch issue 193400). Set only one of them."
    )


def _ghosts(analysis: SnapshotAnalysis) -> str | None:
    counts = analysis.counts
    if not counts.events or not counts.ghost_blocks:
        return None
    return (
        f"The history has no event for {count_blocks(counts.ghost_blocks)} in use "
        f"({format_bytes(counts.ghost_bytes)}): they are older, or the history overflowed."
    )
