"""Why llama.cpp or ONNX Runtime ran out of memory, and their own settings that help."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.counsel import WHO_HOLDS_IT
from memscope.analysis.diagnosis.explanation import Advice, Explanation
from memscope.analysis.diagnosis.situation import torch_size
from memscope.interop.oom_log.formats.runtimes import RuntimeMessage

_LARGEST_CARD_BYTES = 1 << 40
_NOT_TORCH = Advice("PYTORCH_CUDA_ALLOC_CONF=...", "it is not torch's memory")


def explain_runtime(message: RuntimeMessage) -> Explanation:
    """The explanation of one message."""
    return _llama(message) if message.kind == "llama" else _onnxruntime(message)


def _wanted(message: RuntimeMessage) -> str:
    return torch_size(message.requested.bytes) if message.requested else "memory"


def _amounts(message: RuntimeMessage) -> dict[str, int]:
    sizes = {"requested": message.requested, "free": message.free}
    return {name: size.bytes for name, size in sizes.items() if size is not None}


def _llama(message: RuntimeMessage) -> Explanation:
    name = "" if message.device is None else f"GPU {message.device}"
    purpose = f" for {message.detail}" if message.detail else ""
    return Explanation(
        diagnosis="unknown",
        why=(
            f"llama.cpp ran out: {name or 'the device'} was asked for {_wanted(message)}{purpose} "
            "and the driver refused."
        ),
        device=message.device,
        device_name=name,
        amounts=_amounts(message),
        help=tuple(_llama_help(message)),
        no_help=(_NOT_TORCH,),
        unknown=(f"what was free, and who held the rest: {WHO_HOLDS_IT}",),
    )


def _llama_help(message: RuntimeMessage) -> Iterator[Advice]:
    layers = Advice("--n-gpu-layers lower (-ngl)", "layers stay in host memory; Ollama: num_gpu")
    if message.detail == "recurrent state":
        yield from (Advice("--parallel lower (-np)", "each sequence has its own state"), layers)
        return
    context = Advice("--ctx-size lower (-c)", "KV cache and buffers follow it; Ollama: num_ctx")
    if message.detail in ("KV cache", "compute buffers"):
        yield from (context, layers)
    else:
        yield from (layers, context)
    if message.detail != "weights":
        yield from _llama_context_help(message)
    yield Advice("a model of fewer bits (Q4_K_M, say)", "smaller weights")


def _llama_context_help(message: RuntimeMessage) -> Iterator[Advice]:
    buffers = Advice("--ubatch-size lower (-ub)", "smaller compute buffers")
    cache = Advice("--cache-type-k q8_0 --cache-type-v q8_0", "half of a 16-bit KV cache")
    yield from (cache, buffers) if message.detail == "KV cache" else (buffers, cache)


def _onnxruntime(message: RuntimeMessage) -> Explanation:
    diagnosis = "memory_fraction" if message.free is not None else "unknown"
    if message.requested is not None and message.requested.bytes > _LARGEST_CARD_BYTES:
        diagnosis = "request_too_large"
    return Explanation(
        diagnosis=diagnosis,
        why=_onnxruntime_why(diagnosis, message),
        amounts=_amounts(message),
        help=tuple(_onnxruntime_help(diagnosis)),
        no_help=(_NOT_TORCH,),
        unknown=("what its arena held, and whether on the device or the host",),
    )


def _onnxruntime_why(diagnosis: str, message: RuntimeMessage) -> str:
    asked = f"its arena was asked for {_wanted(message)}"
    if diagnosis == "request_too_large":
        return f"A request too large: ONNX Runtime ran out, {asked}. A shape is wrong."
    if message.free is not None:
        left = torch_size(message.free.bytes)
        return f"ONNX Runtime's own limit ran out: {asked}, and {left} was left of gpu_mem_limit."
    return f"ONNX Runtime ran out: {asked} and got no more memory from the device."


def _onnxruntime_help(diagnosis: str) -> Iterator[Advice]:
    if diagnosis == "request_too_large":
        yield Advice("check the shapes of the inputs", "no card holds so much")
        return
    if diagnosis == "memory_fraction":
        yield Advice("gpu_mem_limit higher", "of the CUDA provider; it is what ran out")
    else:
        yield Advice(
            "gpu_mem_limit of each session", "keeps other sessions from taking the whole card"
        )
    yield Advice("arena_extend_strategy=kSameAsRequested", "the arena does not double as it grows")
    yield Advice("cudnn_conv_use_max_workspace=0", "smaller workspaces of convolutions; slower")
    yield Advice("smaller batch or input", "activations follow it")
    yield Advice("stop what else runs on the card", WHO_HOLDS_IT)
