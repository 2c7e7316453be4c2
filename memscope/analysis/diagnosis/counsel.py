"""What advice is made of, whatever the diagnosis: for, against, and what the text leaves open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memscope.analysis.diagnosis.explanation import Advice
from memscope.analysis.diagnosis.situation import Situation, torch_size

WHO_HOLDS_IT = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv"
WHO_HOLDS_IT_HIP = "rocm-smi --showpids"
SNAPSHOT = "memscope explain on a snapshot (torch.cuda.memory._dump_snapshot) tells"


@dataclass(frozen=True, slots=True)
class Counsel:
    """Advice for one diagnosis, for and against, and what the text leaves open."""

    help: tuple[Advice, ...] = ()
    no_help: tuple[Advice, ...] = ()
    unknown: tuple[str, ...] = ()


def less(situation: Situation, count: int) -> Advice:
    """Less memory at once, by ``count`` bytes where these are known."""
    what = "smaller batch or sequence, activation checkpointing"
    if situation.context.server:
        what = "fewer tokens at once"
    return Advice(what, "the least that must go", count or None)


def no_allocator_setting(situation: Situation, reason: str) -> Iterator[Advice]:
    """The settings of torch's allocator as what does not help, and why."""
    if situation.message.kind == "async":
        yield Advice("expandable_segments, max_split_size_mb", "cudaMallocAsync reads neither")
    elif situation.variable:
        name = "expandable_segments:True" if situation.can_expand else "max_split_size_mb"
        yield Advice(f"{situation.variable}={name}", reason)


def empty_cache(situation: Situation) -> Advice:
    """The call that gives torch's cache back as what does not help."""
    module = {"HIP": "cuda", "": "cuda"}.get(situation.message.backend)
    module = module or situation.message.backend.lower()
    reason = "torch did it before it gave up"
    if situation.is_library:
        reason = f"torch's cache holds {torch_size(situation.balance.cached or 0)} alone"
    return Advice(f"torch.{module}.empty_cache()", reason)


def own_memory(situation: Situation) -> Iterator[str]:
    """Memory of the program outside torch, where it is the larger lever."""
    own = situation.balance.own_outside
    if own is not None and own > 2 << 30:
        yield (
            f"what holds {torch_size(own)} of this program outside torch (context, NCCL, graphs, "
            "other libraries): more than a context takes"
        )


def who(situation: Situation) -> str:
    """The command that lists who holds the card."""
    return WHO_HOLDS_IT_HIP if situation.message.backend == "HIP" else WHO_HOLDS_IT
