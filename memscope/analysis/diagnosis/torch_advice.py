"""What would help and what would not, for each diagnosis, in the settings of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from memscope.analysis.diagnosis.advice import (
    BLOCKING,
    FIRST_ERROR,
    SNAPSHOT,
    AdviceSet,
    empty_cache,
    less,
    no_allocator_setting,
    own_memory,
    stop_others,
)
from memscope.analysis.diagnosis.explanation import Advice, AdviceKind, Diagnosis
from memscope.analysis.diagnosis.failed_request import FailedRequest
from memscope.analysis.diagnosis.pool_advice import fragmentation, pending_frees, private_pools
from memscope.interop.oom_log.context import Server
from memscope.interop.oom_log.formats.message import Backend
from memscope.interop.oom_log.formats.torch_message import TorchKind
from memscope.units import torch_size

CONTAINER_LIMIT = Advice(
    "a higher memory limit of the container",
    "dmesg and OOMKilled show if it was reached",
    kind=AdviceKind.CONTAINER_LIMIT,
)
ADDRESS_SPACE = Advice(
    "ulimit -v unlimited, where it is not",
    "RLIMIT_AS; dmesg does not mention it",
    kind=AdviceKind.ADDRESS_SPACE,
)
_LARGE_OTHERS_BYTES = 1 << 30
_XPU_LIMIT_BYTES = 4 << 30


def advise(diagnosis: Diagnosis, request: FailedRequest) -> AdviceSet:
    """Advice for ``diagnosis``."""
    return _ADVICE[diagnosis](request)


def _shortage(request: FailedRequest) -> AdviceSet:
    balance = request.balance
    if request.is_loading:
        return AdviceSet(
            help=tuple(_stop_large_others(request)),
            no_help=(empty_cache(request),),
            unknown=("how large the whole model is: its parameters times bytes per parameter",),
        )
    cached = torch_size(balance.cached_bytes or 0)
    reason = f"only {cached} is cached: no setting makes room"
    if request.message.reserved is None or balance.room is None:
        reason = "no setting makes room"
    return AdviceSet(
        help=(
            less(request, balance.missing_bytes or 0),
            *_stop_large_others(request),
            Advice("quantized weights, sharding, offload", "fewer bytes on the card"),
        ),
        no_help=(*no_allocator_setting(request, reason), empty_cache(request)),
        unknown=(f"which tensors hold it: {SNAPSHOT}", *own_memory(request)),
    )


def _stop_large_others(request: FailedRequest) -> Iterator[Advice]:
    others = request.balance.others_bytes
    if others is not None and others > _LARGE_OTHERS_BYTES:
        yield stop_others(request, others, "stop other programs on the card")


def _memory_fraction(request: FailedRequest) -> AdviceSet:
    if request.message.kind is TorchKind.MPS:
        no_limit = "no upper limit; the system may start to swap"
        return AdviceSet(
            help=(
                less(request, request.shortfall_bytes),
                Advice("PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0", no_limit),
            ),
            no_help=(Advice("PYTORCH_CUDA_ALLOC_CONF=...", "this device does not read it"),),
            unknown=("how much memory the machine has",),
        )
    return AdviceSet(
        help=(*_raised_fraction(request), less(request, request.balance.missing_bytes or 0)),
        no_help=(
            Advice("a larger card alone", "the fraction is what ran out"),
            *no_allocator_setting(request, "the limit counts what is reserved"),
            empty_cache(request),
        ),
        unknown=("who set the fraction: the program, a library or a setting of the allocator",),
    )


def _raised_fraction(request: FailedRequest) -> Iterator[Advice]:
    message, limit, total = request.message, request.message.limit, request.message.total
    held = message.reserved or message.allocated
    if limit is None or total is None or held is None:
        return
    needed = held.bytes + request.wanted_bytes
    fraction = -(-1000 * needed // max(total.bytes, 1)) / 1000
    if fraction <= 1:
        module = "xpu" if message.backend == Backend.XPU else "cuda"
        yield Advice(
            f"torch.{module}.set_per_process_memory_fraction({fraction:.3f})",
            "at least; torch counts what it has reserved",
            max(needed - limit.bytes, 0),
        )


def _outside(request: FailedRequest) -> AdviceSet:
    others = request.balance.others_bytes
    held = request.balance.outside_bytes if others is None else others
    unnamed = "which programs they are"
    if others is None:
        unnamed = "who holds it: torch's messages do not name the memory of other programs"
    return AdviceSet(
        help=(
            stop_others(request, held, "stop what else runs on the card"),
            Advice("another card: CUDA_VISIBLE_DEVICES", "one that nothing else uses"),
        ),
        no_help=(
            *no_allocator_setting(request, "it applies to torch's own memory only"),
            empty_cache(request),
        ),
        unknown=(*(() if request.are_others_known else (unnamed,)), *own_memory(request)),
    )


def _not_device_memory(request: FailedRequest) -> AdviceSet:
    if request.message.kind is TorchKind.HOST:
        fewer = Advice("fewer or smaller DataLoader workers and prefetches", "host memory")
        return AdviceSet(
            help=(fewer, CONTAINER_LIMIT, ADDRESS_SPACE),
            no_help=tuple(no_allocator_setting(request, "it is not device memory")),
            unknown=("how much host memory there was",),
        )
    is_large = request.message.backend == Backend.XPU and request.wanted_bytes >= _XPU_LIMIT_BYTES
    relaxed = Advice("UR_L0_USE_RELAXED_ALLOCATION_LIMITS=1", "the driver's limit is 4 GiB")
    return AdviceSet(
        help=(
            Advice(FIRST_ERROR.setting, "later ones may follow from it"),
            Advice("free -g; ulimit -l -v; dmesg", "host memory, pinned memory, limits"),
            *((relaxed,) if is_large else ()),
        ),
        no_help=(
            *no_allocator_setting(request, "the driver had enough in one piece"),
            Advice("smaller weights on the device", "the device was not full"),
        ),
        unknown=("what refused: the text gives only the device's numbers",),
    )


def _oversubscribed(request: FailedRequest) -> AdviceSet:
    message, total = request.message, request.message.total
    held = max(size.bytes for size in (message.reserved, message.allocated) if size is not None)
    excess = held + request.wanted_bytes - total.bytes if total else None
    return AdviceSet(
        help=(
            Advice("smaller model, batch or sequence", "at least, to stay on the card", excess),
            Advice(
                "NVIDIA control panel: CUDA - Sysmem Fallback Policy: prefer no fallback",
                "fails at once instead of running slowly",
            ),
        ),
        no_help=tuple(no_allocator_setting(request, "the card is too small for what is held")),
        unknown=("how much of it is on the card",),
    )


def _request_too_large(request: FailedRequest) -> AdviceSet:
    return AdviceSet(
        help=(
            Advice("check the tensor's shape", "the traceback shows which tensor it is"),
            Advice("chunk it", "if the shape is right: no card holds it in one piece"),
        ),
        no_help=(
            *no_allocator_setting(request, "no setting makes the card larger"),
            Advice("an empty card", "even that is too small"),
        ),
        unknown=("which operation asked: see the traceback above the message",),
    )


def _nvml_unavailable(request: FailedRequest) -> AdviceSet:
    return AdviceSet(
        help=(
            Advice("smaller model, batch or sequence", "it was an out-of-memory error"),
            Advice("print torch.cuda.mem_get_info() before it", "works without NVML"),
            Advice("CUDA_VISIBLE_DEVICES=MIG-<uuid>", "if you want a MIG slice"),
        ),
        no_help=(Advice("report a bug to PyTorch", "the text asks for it, but it is known"),),
        unknown=("how much was requested and how much was there",),
    )


_BESIDE_SERVER = "leaves room beside the server's share"
_SMALLER_POOLS: dict[Server | None, Advice] = {
    Server.VLLM: Advice("--gpu-memory-utilization lower", _BESIDE_SERVER),
    Server.SGLANG: Advice("--mem-fraction-static lower", _BESIDE_SERVER),
}
_SMALLER_TORCH_POOL = Advice(
    "torch.cuda.set_per_process_memory_fraction(0.9)", "leaves room beside torch's pool"
)


def _library(request: FailedRequest) -> AdviceSet:
    """A library takes its memory beside torch's pool."""
    server = request.context.server
    asked = "" if request.wanted_bytes else "how much was requested, and "
    return AdviceSet(
        help=(
            _SMALLER_POOLS.get(server, _SMALLER_TORCH_POOL),
            stop_others(request, None, "stop what else runs on the card"),
            FIRST_ERROR,
            BLOCKING,
        ),
        no_help=tuple(no_allocator_setting(request, "a library does not use torch's pool")),
        unknown=(f"{asked}how much of the card was free: the text does not say",),
    )


def _unknown(request: FailedRequest) -> AdviceSet:
    message = request.message
    if message.kind is TorchKind.RETRY:
        lower = Advice("lower the share of the card that is filled", "retries cost time")
        return AdviceSet(
            help=(lower,),
            unknown=("what torch held and cached then", "whether the retry succeeded"),
        )
    if request.is_library:
        return _library(request)
    open_ = "what was free on the device"
    if message.allocated is None:
        open_ = "what was allocated, cached and free"
    help_, no_help = [FIRST_ERROR], [Advice("guess at a setting", "none follows from this text")]
    if message.kind is TorchKind.BARE:
        help_.append(BLOCKING)
    if message.kind is TorchKind.HIDDEN:
        numbers = "the message then has its numbers"
        help_.append(Advice("without expandable_segments once", numbers))
        no_help = []
    return AdviceSet(tuple(help_), tuple(no_help), (f"{open_}: the text does not say",))


_ADVICE: dict[Diagnosis, Callable[[FailedRequest], AdviceSet]] = {
    Diagnosis.FRAGMENTATION: fragmentation,
    Diagnosis.SHORTAGE: _shortage,
    Diagnosis.MEMORY_FRACTION: _memory_fraction,
    Diagnosis.OUTSIDE: _outside,
    Diagnosis.PENDING_FREES: pending_frees,
    Diagnosis.PRIVATE_POOLS: private_pools,
    Diagnosis.NOT_DEVICE_MEMORY: _not_device_memory,
    Diagnosis.OVERSUBSCRIBED: _oversubscribed,
    Diagnosis.REQUEST_TOO_LARGE: _request_too_large,
    Diagnosis.NVML_UNAVAILABLE: _nvml_unavailable,
    Diagnosis.UNKNOWN: _unknown,
}
