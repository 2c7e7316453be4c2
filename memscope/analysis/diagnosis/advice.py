"""Advice that several diagnoses share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memscope.analysis.diagnosis.explanation import Advice, AdviceKind
from memscope.analysis.diagnosis.failed_request import FailedRequest
from memscope.interop.oom_log.formats.message import Backend
from memscope.interop.oom_log.formats.torch_message import TorchKind
from memscope.units import torch_size

WHO_HOLDS_IT = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv"
WHO_HOLDS_IT_HIP = "rocm-smi --showpids"
SNAPSHOT = "run memscope explain on a snapshot (torch.cuda.memory._dump_snapshot)"
NOT_TORCH = Advice("PYTORCH_CUDA_ALLOC_CONF=...", "it is not torch's memory")
NO_ALLOCATOR = Advice("PYTORCH_CUDA_ALLOC_CONF=...", "the server sets its budget before")
FIRST_ERROR = Advice("look at the first error in the log", "this one may follow from it")
BLOCKING = Advice("CUDA_LAUNCH_BLOCKING=1", "the traceback then shows the true place")
_LARGE_OWN_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class AdviceSet:
    """What would help, what would not help, and what is unknown."""

    help: tuple[Advice, ...] = ()
    no_help: tuple[Advice, ...] = ()
    unknown: tuple[str, ...] = ()


def less(request: FailedRequest, count: int) -> Advice:
    """Use less memory at once: at least ``count`` bytes, 0 if unknown."""
    what = "smaller batch or sequence, activation checkpointing"
    if request.context.server:
        what = "fewer tokens at once"
    return Advice(what, "at least", count or None)


def no_allocator_setting(request: FailedRequest, reason: str) -> Iterator[Advice]:
    """Settings of torch's allocator, for the list of what does not help."""
    if request.message.kind is TorchKind.ASYNC:
        yield Advice("expandable_segments, max_split_size_mb", "cudaMallocAsync ignores both")
    elif request.variable:
        name = "expandable_segments:True" if request.can_expand else "max_split_size_mb"
        yield Advice(f"{request.variable}={name}", reason)


def empty_cache(request: FailedRequest) -> Advice:
    """`empty_cache`, for the list of what does not help."""
    backend = request.message.backend
    module = "cuda" if backend in ("", Backend.HIP) else backend.lower()
    reason = "torch did it before it gave up"
    if request.is_library:
        reason = f"torch's cache holds only {torch_size(request.balance.cached_bytes or 0)}"
    return Advice(f"torch.{module}.empty_cache()", reason, kind=AdviceKind.EMPTY_CACHE)


def stop_others(request: FailedRequest, frees_bytes: int | None, setting: str) -> Advice:
    """Stop other programs. The reason is the command that lists them."""
    is_hip = request.message.backend == Backend.HIP
    command = WHO_HOLDS_IT_HIP if is_hip else WHO_HOLDS_IT
    return Advice(setting, command, frees_bytes, AdviceKind.STOP_OTHERS)


def own_memory(request: FailedRequest) -> Iterator[str]:
    """What is unknown of the program's own memory outside torch, if that is large."""
    own = request.balance.own_outside_bytes
    if own is not None and own > _LARGE_OWN_BYTES:
        yield (
            f"what uses {torch_size(own)} of this program outside torch (CUDA context, NCCL, "
            "graphs, other libraries): a context alone takes less"
        )
