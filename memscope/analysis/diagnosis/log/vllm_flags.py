"""Flags of vLLM that leave more room, and what each frees.

`--gpu-memory-utilization` is a fraction of the whole card, so a number of bytes becomes a fraction
only if the log gives the card's size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memscope.analysis.diagnosis.explanation import Advice
from memscope.analysis.diagnosis.failed_request import raise_share
from memscope.interop.oom_log.context import LogContext
from memscope.units import torch_size

_FLAG = "--gpu-memory-utilization"
# More than this share of a card cannot be had: context and libraries take the rest.
_HIGHEST_SHARE = 0.98
_SMALL_KV_TYPES = ("fp8", "int8", "nvfp4")


def card_total(context: LogContext) -> int | None:
    """Bytes of the card: as the log says, or computed from the server's budget."""
    total, budget = context.accounts.get("total"), context.accounts.get("budget")
    if total is not None and total.bytes > 0:
        return total.bytes
    share = known_share(context)
    found = round(budget.bytes / share) if budget is not None and share else 0
    return found or None


def known_share(context: LogContext) -> float | None:
    """The share that the log names, None if it names none or an impossible one."""
    share = context.option("gpu_memory_utilization")
    return share if share is not None and 0 < share <= 1 else None


def higher_share(context: LogContext, missing: int) -> Iterator[Advice]:
    """A share with room for ``missing`` more bytes; 0 if the log does not say how many."""
    total, share = card_total(context), known_share(context)
    if is_hopeless(context, missing):
        return
    if not missing:
        above = "higher" if share is None else f"above {share:.2f}"
        yield Advice(f"{_FLAG} {above}", "a share of the card; the log does not say how much")
    elif total is None:
        above = "higher" if share is None else f"above {share:.2f}"
        reason = f"a share of the card: add {torch_size(missing)} / its size (nvidia-smi)"
        if share is not None:
            reason += f"; at most {_HIGHEST_SHARE - share:.2f} is left"
        yield Advice(f"{_FLAG} {above}", reason)
    elif share is None:
        step = raise_share(0, missing, total)
        if step < _HIGHEST_SHARE:
            reason = f"at least; a share of the card's {torch_size(total)}"
            yield Advice(f"{_FLAG} higher by {step:.2f}", reason, round(step * total))
    else:
        higher = raise_share(share, missing, total)
        reason = f"at least; it was {share:.2f}"
        yield Advice(f"{_FLAG} {higher:.2f}", reason, round((higher - share) * total))


def is_hopeless(context: LogContext, missing: int) -> bool:
    """Whether no higher share is possible, or the card is known to be too small for it."""
    total, share = card_total(context), known_share(context)
    if total is None or share is None:
        return share is not None and share >= _HIGHEST_SHARE
    return raise_share(share, max(missing, 1), total) > _HIGHEST_SHARE


def unknown_share(context: LogContext) -> tuple[str, ...]:
    """What the log does not say about the share and the card."""
    total, share = card_total(context), known_share(context)
    if total is not None and share is not None:
        return ()
    if total is not None:
        return ("the share that was set: the log does not name it (vLLM's default is 0.9)",)
    return ("the card's size, which a share is computed from: the log does not give it",)


def has_small_kv(context: LogContext) -> bool:
    """Whether elements of the KV cache take one byte already."""
    return context.options.get("kv_cache_dtype", "").lower().startswith(_SMALL_KV_TYPES)


def half_kv(context: LogContext, needed: int, available: int) -> Iterator[Advice]:
    """A KV cache with elements of one byte."""
    if not has_small_kv(context):
        enough = "enough" if needed // 2 <= available else "not enough alone"
        yield Advice("--kv-cache-dtype fp8", f"half of a 16-bit KV cache; {enough}", needed // 2)


def no_graphs(context: LogContext) -> Iterator[Advice]:
    """No CUDA graphs, unless they are off already."""
    if context.is_on("enforce_eager"):
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
