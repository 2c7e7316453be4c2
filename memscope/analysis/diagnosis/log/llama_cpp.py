"""Explain out-of-memory errors of llama.cpp and Ollama."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.advice import NOT_TORCH, WHO_HOLDS_IT
from memscope.analysis.diagnosis.explanation import Advice, Diagnosis, Explanation
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.llama_cpp import LlamaMessage, Purpose
from memscope.units import torch_size


def explain(message: LlamaMessage, context: LogContext) -> Explanation:
    """Explain one message."""
    name = "" if message.device is None else f"GPU {message.device}"
    wanted = torch_size(message.requested.bytes) if message.requested else "memory"
    purpose = f" for {message.purpose}" if message.purpose else ""
    return Explanation(
        diagnosis=Diagnosis.UNKNOWN,
        why=(
            f"llama.cpp ran out of memory: it asked {name or 'the device'} for {wanted}{purpose}, "
            "and the driver refused."
        ),
        device=message.device,
        device_name=name,
        sizes_bytes=message.sizes_bytes,
        help=tuple(_help(message.purpose)),
        no_help=(NOT_TORCH,),
        unknown=(f"how much was free, and who held the rest: {WHO_HOLDS_IT}",),
    )


def _help(purpose: Purpose | None) -> Iterator[Advice]:
    layers = Advice(
        "--n-gpu-layers lower (-ngl)", "more layers stay in host memory; Ollama: num_gpu"
    )
    if purpose is Purpose.STATE:
        yield from (Advice("--parallel lower (-np)", "each sequence has its own state"), layers)
        return
    context = Advice("--ctx-size lower (-c)", "smaller KV cache and buffers; Ollama: num_ctx")
    if purpose in (Purpose.KV_CACHE, Purpose.COMPUTE):
        yield from (context, layers)
    else:
        yield from (layers, context)
    if purpose is not Purpose.WEIGHTS:
        yield from _context_help(purpose)
    yield Advice("a model of fewer bits (Q4_K_M, say)", "smaller weights")


def _context_help(purpose: Purpose | None) -> Iterator[Advice]:
    buffers = Advice("--ubatch-size lower (-ub)", "smaller compute buffers")
    cache = Advice("--cache-type-k q8_0 --cache-type-v q8_0", "half of a 16-bit KV cache")
    yield from (cache, buffers) if purpose is Purpose.KV_CACHE else (buffers, cache)
