"""What a snapshot proves, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memscope.analysis.diagnosis.snapshot.analysis import SnapshotAnalysis
from memscope.analysis.diagnosis.snapshot.oom import OomMoment
from memscope.analysis.memory_map.holders import NO_STACK, Holder, count_blocks, name_stream
from memscope.units import format_bytes


def why(found: SnapshotAnalysis) -> str:
    """The diagnosis with the numbers that prove it."""
    if found.oom is None:
        return _QUIET[found.diagnosis](found)
    return f"{_asked(found.oom)} {_REASONS[found.diagnosis or 'unknown'](found, found.oom)}"


def evidence(found: SnapshotAnalysis, diagnosis: str) -> str:
    """What the map proves of an error that is described elsewhere; "" where nothing."""
    make = _REASONS.get(diagnosis)
    return make(found, found.oom) if make and found.oom is not None else ""


def largest_holder(found: SnapshotAnalysis) -> str:
    """Who holds most, as a sentence; "" where nobody is known."""
    return _largest_holder(found).strip()


def notes(found: SnapshotAnalysis) -> tuple[str, ...]:
    """What else a reader should know."""
    growth = found.growth
    lines = (
        _hidden_limit(found.oom) if found.oom and found.diagnosis != "memory_fraction" else None,
        _other_streams(found.oom) if found.oom else None,
        _growth_note(found) if growth and found.diagnosis != "growth" else None,
        _both_settings(found),
        _ghosts(found),
        f"{found.counts.ooms} allocations failed within the trace; this is about the last."
        if found.counts.ooms > 1
        else None,
        f"The file holds devices {', '.join(map(str, found.devices))}; this is about "
        f"{found.device}."
        if len(found.devices) > 1
        else None,
    )
    return tuple(line for line in lines if line)


def unknown(found: SnapshotAnalysis) -> tuple[str, ...]:
    """What the file does not carry."""
    lines = ["the card's size and what other programs and libraries hold: no snapshot carries it"]
    if not found.counts.events:
        lines.append(
            "what happened before: no history was recorded "
            "(torch.cuda.memory._record_memory_history)"
        )
    if found.oom and found.oom.device_free_bytes is None:
        lines.append("what the driver had left when the request failed")
    if not any(holder.frames for holder in found.stack_holders) and found.allocated_bytes:
        lines.append("who allocated what: no call stacks were recorded")
    return tuple(lines)


def _asked(oom: OomMoment) -> str:
    free = oom.device_free_bytes
    left = "" if free is None else f" while the driver had {format_bytes(free)} left"
    return (
        f"{format_bytes(oom.requested_bytes)} were asked for on {name_stream(oom.stream)}{left}; "
        f"PyTorch held {format_bytes(oom.memory.reserved_bytes)}, "
        f"{format_bytes(oom.free_bytes)} of it free."
    )


def _fragmented(found: SnapshotAnalysis, oom: OomMoment) -> str:
    if oom.has_fitting_block:
        return (
            f"A free block of {format_bytes(oom.largest_free_bytes)} was there, but max_split_size "
            f"({format_bytes(oom.max_split_bytes)}) keeps it for larger requests."
        )
    pinned = found.pins[0] if found.pins else None
    who = (
        f" A segment of {format_bytes(pinned.bytes)} is pinned by "
        f"{count_blocks(pinned.live_blocks)} ({format_bytes(pinned.live_bytes)})"
        f"{_most_from(pinned.holders)}."
        if pinned and pinned.holders
        else ""
    )
    largest = oom.largest_free_bytes
    reason = (
        f"no one block is large enough: the largest that could serve it is {format_bytes(largest)}"
        if largest
        else f"none of it can serve {name_stream(oom.stream)}"
    )
    return f"Enough is free, but {reason}.{who}"


def _short(found: SnapshotAnalysis, oom: OomMoment) -> str:
    more = ""
    if oom.requested_bytes > oom.most_ever_bytes and oom.device_free_bytes is not None:
        more = (
            f" Even without any tensor no more than {format_bytes(oom.most_ever_bytes)} was to be "
            "had: the request is more than the card has, or something outside PyTorch holds the "
            "rest."
        )
    return (
        f"Free and cached memory together fall short by {format_bytes(oom.missing_bytes)}.{more}"
        f"{_largest_holder(found)}"
    )


def _limited(found: SnapshotAnalysis, oom: OomMoment) -> str:
    held = oom.memory.reserved_bytes
    return (
        f"The driver had enough, so a limit was in force that the file does not carry, most likely "
        f"a memory fraction of {format_bytes(held)} to "
        f"{format_bytes(held + oom.segment_bytes)}; inside it {format_bytes(oom.missing_bytes)} "
        f"were missing.{_largest_holder(found)}"
    )


def _pending(found: SnapshotAnalysis, oom: OomMoment) -> str:
    return (
        f"{format_bytes(oom.pending_bytes)} were freed already, but another stream may still use "
        "them (record_stream), and they would have served it."
    )


def _private(found: SnapshotAnalysis, oom: OomMoment) -> str:
    return (
        f"{format_bytes(oom.private_free_bytes)} are free inside private pools (CUDA graphs, "
        "MemPool), which serve no request from outside them."
    )


def _grown(found: SnapshotAnalysis, oom: OomMoment) -> str:
    return f"What the steps kept would have been enough for it: {_growth_amounts(found)}."


def _too_large(found: SnapshotAnalysis, oom: OomMoment) -> str:
    return "No card has that much memory: the request itself is what is wrong."


def _unclear(found: SnapshotAnalysis, oom: OomMoment) -> str:
    if not oom.requested_bytes:
        return "The event does not say how much was asked for."
    return (
        f"A free block of {format_bytes(oom.largest_free_bytes)} stood ready for it in this map; "
        "why the allocator did not take it, the file does not say (pytorch issue 189504: a free "
        "that completes during the call is not looked at again; asking once more succeeds)."
    )


_REASONS: dict[str, Callable[[SnapshotAnalysis, OomMoment], str]] = {
    "fragmentation": _fragmented,
    "shortage": _short,
    "memory_fraction": _limited,
    "pending_frees": _pending,
    "private_pools": _private,
    "growth": _grown,
    "request_too_large": _too_large,
    "unknown": _unclear,
}


def _nothing_wrong(found: SnapshotAnalysis) -> str:
    return f"No allocation failed, and nothing is wrong: {_held(found)}."


def _quiet_growth(found: SnapshotAnalysis) -> str:
    return f"No allocation failed yet, but {_growth_amounts(found)}."


def _quiet_pending(found: SnapshotAnalysis) -> str:
    return (
        f"No allocation failed, but {format_bytes(found.pending_bytes)} of "
        f"{format_bytes(found.reserved_bytes)} reserved are freed and wait for another stream."
    )


def _quiet_private(found: SnapshotAnalysis) -> str:
    return (
        f"No allocation failed, but {format_bytes(found.private_free_bytes)} of "
        f"{format_bytes(found.reserved_bytes)} reserved are free inside private pools only."
    )


def _quiet_fragmentation(found: SnapshotAnalysis) -> str:
    return (
        f"No allocation failed, but {format_bytes(found.pinned_bytes)} of "
        f"{format_bytes(found.reserved_bytes)} reserved are free in segments that live blocks pin; "
        f"the largest free block is {format_bytes(found.largest_free_bytes)}."
    )


_QUIET: dict[str | None, Callable[[SnapshotAnalysis], str]] = {
    None: _nothing_wrong,
    "growth": _quiet_growth,
    "pending_frees": _quiet_pending,
    "private_pools": _quiet_private,
    "fragmentation": _quiet_fragmentation,
}


def _held(found: SnapshotAnalysis) -> str:
    return (
        f"{format_bytes(found.allocated_bytes)} of {format_bytes(found.reserved_bytes)} reserved "
        f"are allocated, and the largest free block is {format_bytes(found.largest_free_bytes)}"
    )


def _growth_amounts(found: SnapshotAnalysis) -> str:
    growth = found.growth
    assert growth is not None
    keeper = f", most of it from {growth.holders[0].name}" if growth.holders else ""
    return (
        f"allocated memory grows by {format_bytes(growth.bytes_per_step)} a step over "
        f"{growth.steps:,} steps ({growth.source}){keeper}"
    )


def _largest_holder(found: SnapshotAnalysis) -> str:
    known = [holder for holder in found.stack_holders if holder.name != NO_STACK]
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
        f"The driver had {format_bytes(oom.device_free_bytes)} free, more than was asked for: a "
        "limit that the file does not carry was in force (a memory fraction, or one of the system)."
    )


def _other_streams(oom: OomMoment) -> str | None:
    free = sum(bucket.free_bytes for bucket in oom.own if bucket.stream != oom.stream)
    if free < max(oom.requested_bytes // 4, 1):
        return None
    return (
        f"{format_bytes(free)} of what is free belongs to other streams and serves no request "
        "on this one."
    )


def _growth_note(found: SnapshotAnalysis) -> str | None:
    growth = found.growth
    if growth is None or not growth.is_growing:
        return None
    amounts = _growth_amounts(found)
    return f"{amounts[0].upper()}{amounts[1:]}."


def _both_settings(found: SnapshotAnalysis) -> str | None:
    split = found.settings.get("max_split_size")
    if not found.is_expandable or type(split) is not int or split <= 0:
        return None
    return (
        "expandable_segments and max_split_size_mb are both set: together they let reserved "
        "memory grow without use (pytorch issue 193400). Set one of them."
    )


def _ghosts(found: SnapshotAnalysis) -> str | None:
    counts = found.counts
    if not counts.events or not counts.ghost_blocks:
        return None
    return (
        f"No event is in the history of {count_blocks(counts.ghost_blocks)} that live "
        f"({format_bytes(counts.ghost_bytes)}): older than the history, or it overflowed."
    )
