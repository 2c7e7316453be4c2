"""What would help against what a snapshot shows, what would not, and the bytes that it frees."""

from __future__ import annotations

from collections.abc import Callable

from memscope.analysis.diagnosis.explanation import Advice
from memscope.analysis.diagnosis.snapshot.analysis import SnapshotAnalysis
from memscope.analysis.memory_map.fragmentation import Bucket
from memscope.analysis.memory_map.holders import NO_STACK, Holder, count_blocks, name_stream
from memscope.units import format_bytes

_MIB = 1 << 20
# max_split_size_mb must be more than the 20 MiB of a large segment.
_LEAST_SPLIT_MIB = 21


def help_with(found: SnapshotAnalysis) -> tuple[Advice, ...]:
    """What to do, the surest first."""
    make = _HELP.get(found.diagnosis or "")
    return tuple(make(found)) if make else ()


def no_help_with(found: SnapshotAnalysis) -> tuple[Advice, ...]:
    """What is often tried and would not help here."""
    if found.oom is None:
        return ()
    flush = Advice(
        "torch.cuda.empty_cache()",
        "the allocator gave back all that it could before it failed",
        0,
    )
    expand = Advice(
        f"{_variable(found)}=expandable_segments:True",
        f"only {format_bytes(found.oom.free_bytes)} are free inside segments, less than is missing",
        found.oom.free_bytes,
    )
    is_short = found.diagnosis in ("shortage", "memory_fraction", "growth")
    return (flush, expand) if is_short and not found.is_expandable else (flush,)


def _against_fragmentation(found: SnapshotAnalysis) -> list[Advice]:
    advice = _one_stream(found)
    free = found.oom.free_bytes if found.oom else found.pinned_bytes
    if not found.is_expandable:
        advice.append(
            Advice(
                f"{_variable(found)}=expandable_segments:True",
                "segments then grow by pages, so that what is free between blocks can be used",
                free,
            )
        )
        advice += _split_setting(found)
    if found.pins:
        pin = found.pins[0]
        advice.append(
            Advice(
                f"free or move {count_blocks(pin.live_blocks)} in the segment at {pin.address:#x}"
                f"{_from(pin.holders)}",
                f"they take {format_bytes(pin.live_bytes)} and pin {format_bytes(pin.free_bytes)}: "
                "make what lives long first",
                pin.free_bytes,
            )
        )
    return advice


def _one_stream(found: SnapshotAnalysis) -> list[Advice]:
    """Where the free blocks of other streams alone would have served the request."""
    oom = found.oom
    others = [bucket for bucket in oom.own if bucket.stream != oom.stream] if oom else []
    free = sum(bucket.free_bytes for bucket in others)
    if oom is None or max((b.largest_free_bytes for b in others), default=0) < oom.requested_bytes:
        return []
    return [
        Advice(
            f"allocate it on {name_stream(max(others, key=_largest_free).stream)}, or what lies "
            f"there on {name_stream(oom.stream)}",
            "a free block serves only the stream that it was made for",
            free,
        )
    ]


def _largest_free(bucket: Bucket) -> int:
    return bucket.largest_free_bytes


def _split_setting(found: SnapshotAnalysis) -> list[Advice]:
    """A max_split_size below the request keeps the small from splitting the large."""
    oom = found.oom
    if oom is None or not found.pins or found.settings.get("max_split_size", -1) != -1:
        return []
    size = oom.requested_bytes // 2 // _MIB
    if size < _LEAST_SPLIT_MIB or found.pins[0].bytes < oom.requested_bytes // 2:
        return []
    return [
        Advice(
            f"{_variable(found)}=max_split_size_mb:{size}",
            "larger segments are not split for smaller blocks; not beside expandable segments",
        )
    ]


def _against_shortage(found: SnapshotAnalysis) -> list[Advice]:
    missing = found.oom.missing_bytes if found.oom else 0
    advice = [
        Advice(
            f"keep less from {holder.name}",
            f"it holds {format_bytes(holder.bytes)} in {count_blocks(holder.blocks)}; "
            f"{format_bytes(missing)} are missing",
            holder.bytes,
        )
        for holder in found.stack_holders[:2]
        if holder.name != NO_STACK
    ]
    smaller = "ask for less at once (a smaller batch or sequence)"
    return [*advice, Advice(smaller, f"{format_bytes(missing)} less would have been served")]


def _against_limit(found: SnapshotAnalysis) -> list[Advice]:
    free = found.oom.device_free_bytes if found.oom else None
    missing = found.oom.missing_bytes if found.oom else 0
    raised = Advice(
        "torch.cuda.set_per_process_memory_fraction(FRACTION), a higher one",
        f"the card had more free than was asked for; {format_bytes(missing)} more would do",
        free,
    )
    return [raised, *_against_shortage(found)]


def _against_pending(found: SnapshotAnalysis) -> list[Advice]:
    pending = found.oom.pending_bytes if found.oom else found.pending_bytes
    return [
        Advice(
            "torch.cuda.current_stream().wait_stream(OTHER) instead of tensor.record_stream(OTHER)",
            "a block is free again only once the other stream has passed its last use",
            pending,
        ),
        Advice(
            "TORCH_NCCL_AVOID_RECORD_STREAMS=1",
            "where the other stream is that of collectives",
            pending,
        ),
    ]


def _against_private(found: SnapshotAnalysis) -> list[Advice]:
    free = found.oom.private_free_bytes if found.oom else found.private_free_bytes
    return [
        Advice(
            "share one pool between CUDA graphs: torch.cuda.graph(g, pool=handle)",
            "graphs that never run at once can use the same memory; capture the largest first",
            free,
        ),
        Advice(
            "delete graphs and MemPools that are done with, then torch.cuda.empty_cache()",
            "a pool is given back only when nothing uses it",
            free,
        ),
    ]


def _against_growth(found: SnapshotAnalysis) -> list[Advice]:
    growth = found.growth
    assert growth is not None
    return [
        Advice(
            f"let go of what is kept by {holder.name}",
            f"{count_blocks(holder.blocks)} live on from step to step: a list, a cache, a loss "
            "kept with its graph (.detach())",
            holder.bytes,
        )
        for holder in growth.holders[:2]
    ]


def _against_size(found: SnapshotAnalysis) -> list[Advice]:
    return [Advice("look at the shape that is asked for", "a dimension is likely to be wrong")]


_HELP: dict[str, Callable[[SnapshotAnalysis], list[Advice]]] = {
    "fragmentation": _against_fragmentation,
    "shortage": _against_shortage,
    "memory_fraction": _against_limit,
    "pending_frees": _against_pending,
    "private_pools": _against_private,
    "growth": _against_growth,
    "request_too_large": _against_size,
}


def _variable(found: SnapshotAnalysis) -> str:
    """The allocator's variable: PYTORCH_ALLOC_CONF since torch 2.9; both are read there."""
    is_new = found.schema in ("2.10", "2.12", "2.14")
    return "PYTORCH_ALLOC_CONF" if is_new else "PYTORCH_CUDA_ALLOC_CONF"


def _from(holders: tuple[Holder, ...]) -> str:
    names = [holder.name for holder in holders if holder.name != NO_STACK]
    return f" (from {'; '.join(names[:2])})" if names else ""
