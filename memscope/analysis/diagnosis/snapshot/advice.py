"""What would help with the problem in a snapshot, what would not, and how much each frees."""

from __future__ import annotations

from collections.abc import Callable

from memscope.analysis.diagnosis.explanation import Advice, Diagnosis
from memscope.analysis.diagnosis.snapshot.analysis import SnapshotAnalysis
from memscope.analysis.memory_map.fragmentation import Bucket
from memscope.analysis.memory_map.holders import NO_STACK, Holder, count_blocks, name_stream
from memscope.units import format_bytes

_MIB = 1 << 20
# max_split_size_mb must be more than the 20 MiB of a large segment.
_MIN_SPLIT_MIB = 21
# More memory is needed than is free inside segments.
_SHORT = (Diagnosis.SHORTAGE, Diagnosis.MEMORY_FRACTION, Diagnosis.GROWTH)


def help_with(analysis: SnapshotAnalysis) -> tuple[Advice, ...]:
    """What to do, the surest advice first."""
    make = _HELP.get(analysis.diagnosis) if analysis.diagnosis else None
    return tuple(make(analysis)) if make else ()


def no_help_with(analysis: SnapshotAnalysis) -> tuple[Advice, ...]:
    """What people often try and would not help here."""
    if analysis.oom is None:
        return ()
    flush = Advice(
        "torch.cuda.empty_cache()",
        "the allocator gave back everything it could before it failed",
        0,
    )
    free = analysis.oom.free_bytes
    expand = Advice(
        f"{_variable(analysis)}=expandable_segments:True",
        f"only {format_bytes(free)} is free inside segments, less than is missing",
        free,
    )
    is_short = analysis.diagnosis in _SHORT
    return (flush, expand) if is_short and not analysis.is_expandable else (flush,)


def _against_fragmentation(analysis: SnapshotAnalysis) -> list[Advice]:
    advice = _one_stream(analysis)
    free = analysis.oom.free_bytes if analysis.oom else analysis.pinned_bytes
    if not analysis.is_expandable:
        advice.append(
            Advice(
                f"{_variable(analysis)}=expandable_segments:True",
                "segments then grow by pages, and free memory between blocks can be used",
                free,
            )
        )
        advice += _split_setting(analysis)
    if analysis.pins:
        pin = analysis.pins[0]
        advice.append(
            Advice(
                f"free or move {count_blocks(pin.live_blocks)} in the segment at {pin.address:#x}"
                f"{_from(pin.holders)}",
                f"they take {format_bytes(pin.live_bytes)} and pin {format_bytes(pin.free_bytes)}: "
                "allocate long-lived tensors first",
                pin.free_bytes,
            )
        )
    return advice


def _one_stream(analysis: SnapshotAnalysis) -> list[Advice]:
    """Advice if a free block of another stream would have been large enough."""
    oom = analysis.oom
    others = [bucket for bucket in oom.own if bucket.stream != oom.stream] if oom else []
    free = sum(bucket.free_bytes for bucket in others)
    if oom is None or max((b.largest_free_bytes for b in others), default=0) < oom.requested_bytes:
        return []
    return [
        Advice(
            f"allocate it on {name_stream(max(others, key=_largest_free).stream)}, or what lies "
            f"there on {name_stream(oom.stream)}",
            "only the stream of a free block can use it",
            free,
        )
    ]


def _largest_free(bucket: Bucket) -> int:
    return bucket.largest_free_bytes


def _split_setting(analysis: SnapshotAnalysis) -> list[Advice]:
    """A max_split_size below the request keeps small blocks out of large segments."""
    oom = analysis.oom
    if oom is None or not analysis.pins or analysis.settings.get("max_split_size", -1) != -1:
        return []
    size = oom.requested_bytes // 2 // _MIB
    if size < _MIN_SPLIT_MIB or analysis.pins[0].bytes < oom.requested_bytes // 2:
        return []
    return [
        Advice(
            f"{_variable(analysis)}=max_split_size_mb:{size}",
            "larger segments are not split for small blocks; not with expandable segments",
        )
    ]


def _against_shortage(analysis: SnapshotAnalysis) -> list[Advice]:
    missing = analysis.oom.missing_bytes if analysis.oom else 0
    advice = [
        Advice(
            f"keep less from {holder.name}",
            f"it holds {format_bytes(holder.bytes)} in {count_blocks(holder.blocks)}; "
            f"{format_bytes(missing)} is missing",
            holder.bytes,
        )
        for holder in analysis.stack_holders[:2]
        if holder.name != NO_STACK
    ]
    smaller = "ask for less at once (a smaller batch or sequence)"
    return [*advice, Advice(smaller, f"a request smaller by {format_bytes(missing)} would fit")]


def _against_limit(analysis: SnapshotAnalysis) -> list[Advice]:
    free = analysis.oom.device_free_bytes if analysis.oom else None
    missing = analysis.oom.missing_bytes if analysis.oom else 0
    raised = Advice(
        "torch.cuda.set_per_process_memory_fraction(FRACTION), a higher one",
        f"the card had more free than was requested; {format_bytes(missing)} more is enough",
        free,
    )
    return [raised, *_against_shortage(analysis)]


def _against_pending(analysis: SnapshotAnalysis) -> list[Advice]:
    pending = analysis.oom.pending_bytes if analysis.oom else analysis.pending_bytes
    return [
        Advice(
            "torch.cuda.current_stream().wait_stream(OTHER) instead of tensor.record_stream(OTHER)",
            "record_stream keeps a block in use until the other stream has passed it",
            pending,
        ),
        Advice(
            "TORCH_NCCL_AVOID_RECORD_STREAMS=1",
            "if the other stream runs collectives",
            pending,
        ),
    ]


def _against_private(analysis: SnapshotAnalysis) -> list[Advice]:
    free = analysis.oom.private_free_bytes if analysis.oom else analysis.private_free_bytes
    return [
        Advice(
            "share one pool between CUDA graphs: torch.cuda.graph(g, pool=handle)",
            "graphs that never run together can share memory; capture the largest first",
            free,
        ),
        Advice(
            "delete graphs and MemPools that are done with, then torch.cuda.empty_cache()",
            "a pool is given back only if nothing uses it",
            free,
        ),
    ]


def _against_growth(analysis: SnapshotAnalysis) -> list[Advice]:
    growth = analysis.growth
    assert growth is not None
    return [
        Advice(
            f"let go of what is kept by {holder.name}",
            f"{count_blocks(holder.blocks)} stay from step to step: a list, a cache, a loss kept "
            "with its graph (.detach())",
            holder.bytes,
        )
        for holder in growth.holders[:2]
    ]


def _against_size(analysis: SnapshotAnalysis) -> list[Advice]:
    return [Advice("look at the shape that is asked for", "one dimension is probably wrong")]


_HELP: dict[Diagnosis, Callable[[SnapshotAnalysis], list[Advice]]] = {
    Diagnosis.FRAGMENTATION: _against_fragmentation,
    Diagnosis.SHORTAGE: _against_shortage,
    Diagnosis.MEMORY_FRACTION: _against_limit,
    Diagnosis.PENDING_FREES: _against_pending,
    Diagnosis.PRIVATE_POOLS: _against_private,
    Diagnosis.GROWTH: _against_growth,
    Diagnosis.REQUEST_TOO_LARGE: _against_size,
}


def _variable(analysis: SnapshotAnalysis) -> str:
    """The allocator's variable: PYTORCH_ALLOC_CONF since torch 2.9, which also reads the other."""
    is_new = tuple(map(int, analysis.schema.split("."))) >= (2, 9)
    return "PYTORCH_ALLOC_CONF" if is_new else "PYTORCH_CUDA_ALLOC_CONF"


def _from(holders: tuple[Holder, ...]) -> str:
    names = [holder.name for holder in holders if holder.name != NO_STACK]
    return f" (from {'; '.join(names[:2])})" if names else ""
