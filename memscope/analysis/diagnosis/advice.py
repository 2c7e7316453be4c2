"""What would help and what would not, for each diagnosis, in the settings of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from memscope.analysis.diagnosis.counsel import (
    SNAPSHOT,
    Counsel,
    empty_cache,
    less,
    no_allocator_setting,
    own_memory,
    who,
)
from memscope.analysis.diagnosis.explanation import Advice
from memscope.analysis.diagnosis.pool_advice import fragmentation, pending_frees, private_pools
from memscope.analysis.diagnosis.situation import Situation, torch_size

# What a message does not say of memory outside torch: of all of it, or of other programs' alone.
UNNAMED = (
    "who holds it: a message of torch names no other program's memory",
    "which programs they are",
)
CONTAINER = Advice("a higher memory limit of the container", "dmesg and OOMKilled tell")
OWN_LIMIT = Advice("ulimit -v unlimited, where it is not", "RLIMIT_AS; dmesg says nothing of it")


def advise(diagnosis: str, situation: Situation) -> Counsel:
    """Advice for ``diagnosis``."""
    return _COUNSEL[diagnosis](situation)


_MODEL_SIZE = ("how large the whole model is: bytes a parameter times its parameters",)


def _shortage(situation: Situation) -> Counsel:
    balance = situation.balance
    if situation.is_loading:
        return Counsel(
            help=tuple(_others(situation)), no_help=(empty_cache(situation),), unknown=_MODEL_SIZE
        )
    missing = balance.missing or 0
    cached = torch_size(balance.cached or 0)
    reason = f"only {cached} is cached: no setting makes room"
    if situation.message.reserved is None or balance.room is None:
        reason = "no setting makes room"
    return Counsel(
        help=(
            less(situation, missing),
            *_others(situation),
            Advice("quantized weights, sharding, offload", "fewer bytes on the card"),
        ),
        no_help=(*no_allocator_setting(situation, reason), empty_cache(situation)),
        unknown=(f"which tensors hold it: {SNAPSHOT}", *own_memory(situation)),
    )


def _others(situation: Situation) -> Iterator[Advice]:
    others = situation.balance.others
    if others is not None and others > 1 << 30:
        yield Advice("stop other programs on the card", who(situation), others)


def _memory_fraction(situation: Situation) -> Counsel:
    message = situation.message
    if message.kind == "mps":
        return Counsel(
            help=(
                less(situation, situation.shortfall),
                Advice(
                    "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0",
                    "no upper limit; the system may begin to swap",
                ),
            ),
            no_help=(Advice("PYTORCH_CUDA_ALLOC_CONF=...", "not read on this device"),),
            unknown=("how much memory the machine has",),
        )
    return Counsel(
        help=(*_raised_fraction(situation), less(situation, situation.balance.missing or 0)),
        no_help=(
            Advice("a larger card alone", "the fraction is what ran out"),
            *no_allocator_setting(situation, "the limit counts what is reserved"),
            empty_cache(situation),
        ),
        unknown=("who set the fraction: the program, a library or a setting of the allocator",),
    )


def _raised_fraction(situation: Situation) -> Iterator[Advice]:
    message, limit, total = situation.message, situation.message.limit, situation.message.total
    held = message.reserved or message.allocated
    if limit is None or total is None or held is None:
        return
    needed = held.bytes + situation.wanted
    fraction = -(-1000 * needed // max(total.bytes, 1)) / 1000
    if fraction <= 1:
        module = "xpu" if message.backend == "XPU" else "cuda"
        yield Advice(
            f"torch.{module}.set_per_process_memory_fraction({fraction:.3f})",
            "at least; torch counts what it has reserved",
            max(needed - limit.bytes, 0),
        )


def _outside(situation: Situation) -> Counsel:
    balance = situation.balance
    held = balance.others if balance.others is not None else balance.outside
    return Counsel(
        help=(
            Advice("stop what else runs on the card", who(situation), held),
            Advice("another card: CUDA_VISIBLE_DEVICES", "one that nothing else uses"),
        ),
        no_help=(
            *no_allocator_setting(situation, "it governs torch's own memory only"),
            empty_cache(situation),
        ),
        unknown=(
            UNNAMED[balance.others is not None],
            *own_memory(situation),
        ),
    )


def _not_device_memory(situation: Situation) -> Counsel:
    if situation.message.kind == "host":
        return Counsel(
            help=(
                Advice("fewer or smaller DataLoader workers and prefetches", "host memory"),
                CONTAINER,
                OWN_LIMIT,
            ),
            no_help=tuple(no_allocator_setting(situation, "it is not device memory")),
            unknown=("how much host memory there was",),
        )
    large = situation.message.backend == "XPU" and situation.wanted >= 4 << 30
    return Counsel(
        help=(
            Advice("look at the first error in the log", "later ones may follow from it"),
            Advice("free -g; ulimit -l -v; dmesg", "host memory, pinned memory, limits"),
            *(
                (Advice("UR_L0_USE_RELAXED_ALLOCATION_LIMITS=1", "4 GiB is a driver's limit"),)
                if large
                else ()
            ),
        ),
        no_help=(
            *no_allocator_setting(situation, "there was enough in one piece for the driver"),
            Advice("smaller weights on the device", "the device was not full"),
        ),
        unknown=("what refused: the text gives the device's numbers only",),
    )


def _oversubscribed(situation: Situation) -> Counsel:
    message, total = situation.message, situation.message.total
    held = max(size.bytes for size in (message.reserved, message.allocated) if size is not None)
    excess = held + situation.wanted - total.bytes if total else None
    return Counsel(
        help=(
            Advice("smaller model, batch or sequence", "what it takes to stay on the card", excess),
            Advice(
                "NVIDIA control panel: CUDA - Sysmem Fallback Policy: prefer no fallback",
                "fails at once instead of running slowly",
            ),
        ),
        no_help=tuple(no_allocator_setting(situation, "the card is too small for what is held")),
        unknown=("how much of it is on the card",),
    )


def _request_too_large(situation: Situation) -> Counsel:
    return Counsel(
        help=(
            Advice("check the tensor's shape", "the traceback says which"),
            Advice("chunk it", "if it is right, no card holds it in one piece"),
        ),
        no_help=(
            *no_allocator_setting(situation, "no setting makes the card larger"),
            Advice("an empty card", "even that is too small"),
        ),
        unknown=("which operation asked: the traceback above the message says",),
    )


def _nvml_unavailable(situation: Situation) -> Counsel:
    return Counsel(
        help=(
            Advice("smaller model, batch or sequence", "it was an out-of-memory error"),
            Advice("print torch.cuda.mem_get_info() before it", "works without NVML"),
            Advice("CUDA_VISIBLE_DEVICES=MIG-<uuid>", "where a MIG slice is meant"),
        ),
        no_help=(Advice("report a bug to PyTorch", "the text asks for it; it is known"),),
        unknown=("what was asked for and what was there",),
    )


_POOLS = {
    "vllm": ("--gpu-memory-utilization lower", "leaves room beside the server's share"),
    "sglang": ("--mem-fraction-static lower", "leaves room beside the server's share"),
    "": ("torch.cuda.set_per_process_memory_fraction(0.9)", "leaves room beside torch's pool"),
}


def _library(situation: Situation) -> Counsel:
    """A library's refusal: it takes its memory beside torch's pool."""
    asked = "" if situation.wanted else "what was asked for, and "
    return Counsel(
        help=(
            Advice(*_POOLS.get(situation.context.server, _POOLS[""])),
            Advice("stop what else runs on the card", who(situation)),
            Advice("look at the first error in the log", "this one may follow from it"),
            Advice("CUDA_LAUNCH_BLOCKING=1", "the traceback then shows the true place"),
        ),
        no_help=tuple(no_allocator_setting(situation, "a library does not ask torch's pool")),
        unknown=(f"{asked}what was free on the card: the text does not say",),
    )


def _unknown(situation: Situation) -> Counsel:
    message = situation.message
    if message.kind == "retry":
        return Counsel(
            help=(Advice("lower the share of the card that is filled", "retries cost time"),),
            unknown=("what torch held and cached then", "whether the retry succeeded"),
        )
    left_open = "what was free on the device"
    if message.allocated is None:
        left_open = "what was allocated, cached and free"
    if situation.is_library:
        return _library(situation)
    help_ = [Advice("look at the first error in the log", "this one may follow from it")]
    if message.kind == "bare":
        help_.append(Advice("CUDA_LAUNCH_BLOCKING=1", "the traceback then shows the true place"))
    if message.kind == "disguise":
        help_.append(Advice("without expandable_segments once", "the message then has its numbers"))
    return Counsel(
        help=tuple(help_),
        no_help=(
            (Advice("guess at a setting", "none follows from this text"),)
            if message.kind != "disguise"
            else ()
        ),
        unknown=(f"{left_open}: the text does not say",),
    )


_COUNSEL: dict[str, Callable[[Situation], Counsel]] = {
    "fragmentation": fragmentation,
    "shortage": _shortage,
    "memory_fraction": _memory_fraction,
    "outside": _outside,
    "pending_frees": pending_frees,
    "private_pools": private_pools,
    "not_device_memory": _not_device_memory,
    "oversubscribed": _oversubscribed,
    "request_too_large": _request_too_large,
    "nvml_unavailable": _nvml_unavailable,
    "unknown": _unknown,
}
