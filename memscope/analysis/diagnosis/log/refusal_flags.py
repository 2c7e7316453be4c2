"""Flags of vLLM that leave a request more KV cache, with what each frees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memscope.analysis.diagnosis.explanation import Advice
from memscope.interop.oom_log.context import LogContext


def has_small_kv(context: LogContext) -> bool:
    """Whether the KV cache has elements of one byte already."""
    return context.options.get("kv_cache_dtype", "").lower().startswith(("fp8", "int8", "nvfp4"))


def half_kv(context: LogContext, needed: int, available: int) -> Iterator[Advice]:
    """A KV cache of one byte an element."""
    if not has_small_kv(context):
        enough = "enough" if needed // 2 <= available else "not enough alone"
        yield Advice("--kv-cache-dtype fp8", f"half of a 16-bit KV cache; {enough}", needed // 2)


def no_graphs(context: LogContext) -> Iterator[Advice]:
    """Nothing captured, where graphs are not off already."""
    if context.options.get("enforce_eager", "").lower() == "true":
        return
    graphs = context.accounts.get("graphs")
    yield Advice(
        "--enforce-eager", "no CUDA graphs; slower decoding", graphs.bytes if graphs else None
    )


def half_request(context: LogContext, needed: int, available: int) -> Iterator[Advice]:
    """Twice the cards for one request: each holds half of its KV cache and half of the weights."""
    weights = context.accounts.get("weights")
    half = weights.bytes // 2 if weights else 0
    enough = needed - needed // 2 <= available + half
    what = "half of weights and KV cache on each" if half else "half on each"
    verdict = "enough" if enough else "not enough alone" if half else ""
    for advice in more_cards(context, needed // 2 + half):
        yield replace(advice, reason=f"twice the cards, {what}{verdict and f'; {verdict}'}")


def more_cards(context: LogContext, frees: int | None) -> Iterator[Advice]:
    """Twice the cards."""
    size = context.option("tensor_parallel_size")
    doubled = int(size) * 2 if size and 1 <= size <= 64 else 2
    yield Advice(f"--tensor-parallel-size {doubled}", "twice the cards, half on each", frees)
