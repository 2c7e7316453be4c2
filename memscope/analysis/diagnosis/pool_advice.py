"""Advice if memory is unused inside torch: fragments, pending frees, private pools."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.advice import (
    SNAPSHOT,
    AdviceSet,
    empty_cache,
    no_allocator_setting,
    own_memory,
)
from memscope.analysis.diagnosis.explanation import Advice
from memscope.analysis.diagnosis.failed_request import FailedRequest


def fragmentation(request: FailedRequest) -> AdviceSet:
    """Advice for fragmentation."""
    shortfall = request.shortfall_bytes
    smaller = Advice(
        "smaller or chunked request", "the driver can then serve it directly", shortfall
    )
    return AdviceSet(
        help=(*_unsplit(request), *((smaller,) if shortfall else ())),
        no_help=(
            *_already_expanding(request),
            empty_cache(request),
            Advice("restart alone", "memory fragments again in the same way"),
        ),
        unknown=(
            f"the largest free block, and what pins the segments: {SNAPSHOT}",
            *own_memory(request),
        ),
    )


def _unsplit(request: FailedRequest) -> Iterator[Advice]:
    """Settings that keep segments whole."""
    cached, variable = request.balance.cached_bytes, request.variable
    if request.context.has_expandable_segments:
        if "max_split_size_mb" in request.context.settings:
            yield Advice(
                "remove max_split_size_mb",
                "with expandable_segments it lets reserved memory grow without end",
                cached,
            )
        return
    if not variable:
        return
    if request.can_expand:
        reason = "at most; torch can then map free pages elsewhere"
        yield Advice(f"{variable}=expandable_segments:True", reason, cached)
        return
    reason = "at most" if request.message.hint else "at most; needs torch 1.10"
    yield Advice(f"{variable}=max_split_size_mb:128", reason, cached)
    yield Advice("torch 2.1 or later", f"{variable}=expandable_segments:True", cached)


def _already_expanding(request: FailedRequest) -> Iterator[Advice]:
    if request.context.has_expandable_segments and request.variable:
        yield Advice(f"{request.variable}=expandable_segments:True", "it was on already")


def pending_frees(request: FailedRequest) -> AdviceSet:
    """Advice for memory that another stream still uses."""
    return AdviceSet(
        help=(
            Advice(
                "torch.cuda.synchronize() before it",
                "lets the frees complete",
                request.balance.pending_bytes,
            ),
            Advice("fewer tensors in flight on side streams", "record_stream, NCCL, prefetch"),
        ),
        no_help=tuple(no_allocator_setting(request, "blocks in use cannot be merged")),
        unknown=(f"which stream uses them: {SNAPSHOT}",),
    )


def private_pools(request: FailedRequest) -> AdviceSet:
    """Advice for memory that is free inside private pools only."""
    free = request.balance.private_free_bytes
    return AdviceSet(
        help=(
            Advice("capture fewer graphs or sizes", "at most", free),
            Advice("one pool for all graphs: torch.cuda.graph(pool=...)", "at most", free),
        ),
        no_help=(
            *no_allocator_setting(request, "nothing else can use a private pool"),
            empty_cache(request),
        ),
        unknown=(f"which graphs hold it: {SNAPSHOT}",),
    )
