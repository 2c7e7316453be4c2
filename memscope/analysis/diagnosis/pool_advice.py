"""Advice for memory that lies unused inside torch: fragments, pending frees, private pools."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.counsel import (
    SNAPSHOT,
    Counsel,
    empty_cache,
    no_allocator_setting,
    own_memory,
)
from memscope.analysis.diagnosis.explanation import Advice
from memscope.analysis.diagnosis.situation import Situation


def fragmentation(situation: Situation) -> Counsel:
    """Advice for this diagnosis."""
    shortfall = situation.shortfall
    return Counsel(
        help=(
            *_unsplit(situation),
            *((_smaller(shortfall),) if shortfall else ()),
        ),
        no_help=(
            *_already_expanding(situation),
            empty_cache(situation),
            Advice("restart alone", "blocks split again in the same way"),
        ),
        unknown=(
            f"the largest free block, and who keeps the segments from merging: {SNAPSHOT}",
            *own_memory(situation),
        ),
    )


def _smaller(shortfall: int) -> Advice:
    return Advice("smaller or chunked request", "then the driver gives it itself", shortfall)


def _unsplit(situation: Situation) -> Iterator[Advice]:
    """Settings that keep segments whole."""
    cached, variable = situation.balance.cached, situation.variable
    settings = situation.context.settings
    if situation.context.has_expandable_segments:
        if "max_split_size_mb" in settings:
            yield Advice(
                "remove max_split_size_mb",
                "with expandable_segments reserved memory grows without end",
                cached,
            )
        return
    if not variable:
        return
    if situation.can_expand:
        yield Advice(f"{variable}=expandable_segments:True", "at most; pages are remapped", cached)
        return
    reason = "at most; needs torch 1.10" if not situation.message.hint else "at most"
    yield Advice(f"{variable}=max_split_size_mb:128", reason, cached)
    yield Advice("torch 2.1 or later", f"{variable}=expandable_segments:True", cached)


def _already_expanding(situation: Situation) -> Iterator[Advice]:
    if situation.context.has_expandable_segments and situation.variable:
        yield Advice(f"{situation.variable}=expandable_segments:True", "it was on already")


def pending_frees(situation: Situation) -> Counsel:
    """Advice for this diagnosis."""
    pending = situation.balance.pending
    return Counsel(
        help=(
            Advice("torch.cuda.synchronize() before it", "lets the frees complete", pending),
            Advice("fewer tensors in flight on side streams", "record_stream, NCCL, prefetch"),
        ),
        no_help=tuple(no_allocator_setting(situation, "blocks in use cannot be merged")),
        unknown=(f"which stream holds them: {SNAPSHOT}",),
    )


def private_pools(situation: Situation) -> Counsel:
    """Advice for this diagnosis."""
    free = situation.balance.private_free
    return Counsel(
        help=(
            Advice("capture fewer graphs or sizes", "at most", free),
            Advice("one pool for all graphs: torch.cuda.graph(pool=...)", "at most", free),
        ),
        no_help=(
            *no_allocator_setting(situation, "a private pool lends nothing"),
            empty_cache(situation),
        ),
        unknown=(f"which graphs hold it: {SNAPSHOT}",),
    )
