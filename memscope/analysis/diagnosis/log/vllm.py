"""Explain vLLM's refusals to start, and what would have let it start."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from memscope.analysis.diagnosis.advice import NO_ALLOCATOR, WHO_HOLDS_IT, AdviceSet
from memscope.analysis.diagnosis.balance import CONTEXT_BYTES, OUTSIDE_SHARE
from memscope.analysis.diagnosis.explanation import Advice, Diagnosis, Explanation, Share, ShareKind
from memscope.analysis.diagnosis.failed_request import lower_share
from memscope.analysis.diagnosis.log.vllm_flags import (
    half_kv,
    half_request,
    has_small_kv,
    higher_share,
    is_hopeless,
    more_cards,
    no_graphs,
    unknown_share,
)
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.vllm import VllmKind, VllmRefusal
from memscope.units import torch_size

_Explained: TypeAlias = tuple[Diagnosis, str, AdviceSet]
_LOWER_SEQUENCES = Advice("--max-num-seqs lower", "one request alone does not fit")


def explain(refusal: VllmRefusal, context: LogContext) -> Explanation:
    """Explain one refusal."""
    diagnosis, why, advice = _EXPLAIN[refusal.kind](refusal, context)
    return Explanation(
        diagnosis=diagnosis,
        why=why,
        device=refusal.device,
        device_name=_device_name(refusal),
        sizes_bytes=refusal.sizes_bytes,
        shares=_shares(refusal, context),
        help=advice.help,
        no_help=advice.no_help,
        unknown=advice.unknown,
    )


def _device_name(refusal: VllmRefusal) -> str:
    if refusal.device is not None:
        return f"GPU {refusal.device}"
    return "card" if refusal.total is not None else "the server's share"


def _free(refusal: VllmRefusal, context: LogContext) -> _Explained:
    total, free, wanted = refusal.total, refusal.free, refusal.requested
    if total is None or free is None or wanted is None:
        return Diagnosis.UNKNOWN, "vLLM found less free memory than it wants.", AdviceSet()
    if total.bytes < max(free.bytes, wanted.bytes, 1):
        why = "vLLM wants more memory than is free, but its numbers do not fit any card."
        return Diagnosis.UNKNOWN, why, AdviceSet()
    used, missing = total.bytes - free.bytes, max(wanted.bytes - free.bytes, 0)
    beyond = used - CONTEXT_BYTES
    has_others = beyond >= missing or beyond * OUTSIDE_SHARE > total.bytes
    reason = (
        "Something else holds the card."
        if has_others
        else "A CUDA context and the driver alone take about that much: the share is too large."
    )
    why = (
        f"vLLM wants {torch_size(wanted.bytes)} of {torch_size(total.bytes)} "
        f"(--gpu-memory-utilization {refusal.share:g}), but only {torch_size(free.bytes)} was "
        f"free when it started. {torch_size(used)} was in use before it had loaded anything. "
        f"{reason}"
    )
    share = free.bytes * 100 // total.bytes / 100
    diagnosis = Diagnosis.OUTSIDE if has_others else Diagnosis.SERVER_BUDGET
    return diagnosis, why, _free_advice(share, missing, has_others=has_others)


def _free_advice(share: float, missing: int, *, has_others: bool) -> AdviceSet:
    stop = Advice("stop what else runs on the card", WHO_HOLDS_IT, missing)
    smaller = Advice(f"--gpu-memory-utilization {share:.2f}", "at most, with what is free now")
    another = Advice("another card: CUDA_VISIBLE_DEVICES", "an empty one")
    chosen = ((stop, has_others), (smaller, bool(share)), (another, has_others))
    return AdviceSet(
        help=tuple(advice for advice, is_useful in chosen if is_useful),
        no_help=(
            NO_ALLOCATOR,
            Advice("--max-model-len lower", "vLLM checks the share before it reads the model"),
        ),
        unknown=(
            *(("who holds the rest",) if has_others else ()),
            "whether weights and KV cache fit into the smaller share",
        ),
    )


def _kv(refusal: VllmRefusal, context: LogContext) -> _Explained:
    needed, available = refusal.requested, refusal.available
    if needed is None or available is None:
        return Diagnosis.SERVER_BUDGET, "One request of full length does not fit.", AdviceSet()
    missing = max(needed.bytes - available.bytes, 0)
    length = f" ({refusal.wanted_count:,} tokens)" if refusal.wanted_count else ""
    fits = f" {refusal.fitting_count:,} tokens would fit." if refusal.fitting_count else ""
    why = (
        f"vLLM's budget is too small for one request of full length{length}: it needs "
        f"{torch_size(needed.bytes)} of KV cache, and {torch_size(available.bytes)} is left after "
        f"weights and activations, {torch_size(missing)} too little.{fits}"
    )
    help_ = []
    if refusal.fitting_count:
        help_.append(Advice(f"--max-model-len {refusal.fitting_count}", "at most", missing))
    else:
        help_.append(Advice("--max-model-len lower", "the KV cache grows with it", missing))
    help_ += [*half_kv(context, needed.bytes, available.bytes), *higher_share(context, missing)]
    help_ += [*no_graphs(context), *half_request(context, needed.bytes, available.bytes)]
    no_help = [NO_ALLOCATOR, _LOWER_SEQUENCES]
    if is_hopeless(context, missing):
        too_much = "it would need more than the card has"
        no_help.append(Advice("--gpu-memory-utilization higher alone", too_much))
    advice = AdviceSet(tuple(help_), tuple(no_help), unknown_share(context))
    return Diagnosis.SERVER_BUDGET, why, advice


def _tokens(refusal: VllmRefusal, context: LogContext) -> _Explained:
    wanted, fitting = refusal.wanted_count or 0, refusal.fitting_count or 0
    why = (
        f"vLLM's budget is too small for one request of full length: {wanted:,} tokens are "
        f"allowed, and the KV cache that is left after weights and activations holds {fitting:,}."
    )
    halved = ", which is enough" if 2 * fitting >= wanted else ", not enough alone"
    help_ = [Advice(f"--max-model-len {fitting}", "at most")] if fitting else []
    if not has_small_kv(context):
        help_.append(Advice("--kv-cache-dtype fp8", f"holds twice the tokens{halved}"))
    missing = _missing_kv_bytes(context, wanted, fitting)
    help_ += [*higher_share(context, missing), *no_graphs(context), *more_cards(context, None)]
    unknown = ("how many bytes of KV cache a token takes", *unknown_share(context))
    advice = AdviceSet(tuple(help_), (NO_ALLOCATOR, _LOWER_SEQUENCES), unknown)
    return Diagnosis.SERVER_BUDGET, why, advice


def _missing_kv_bytes(context: LogContext, wanted: int, fitting: int) -> int:
    """KV cache that ``wanted`` tokens lack; 0 if the log does not say."""
    available = context.accounts.get("kv")
    if available is None or available.bytes <= 0 or not fitting:
        return 0
    return max(-(-available.bytes * (wanted - fitting) // fitting), 0)


def _no_kv(refusal: VllmRefusal, context: LogContext) -> _Explained:
    left, weights = context.accounts.get("kv"), context.accounts.get("weights")
    deficit = max(-left.bytes, 0) if left is not None else None
    spent = f" ({torch_size(weights.bytes)})" if weights else ""
    short = f", and {torch_size(deficit)} more" if deficit else ""
    why = (
        f"vLLM has no memory left for the KV cache: weights{spent} and activations take its whole "
        f"share of the card{short}."
    )
    half_bytes = weights.bytes // 2 if weights else None
    help_ = (
        *higher_share(context, deficit or 0),
        Advice("--max-num-batched-tokens lower", "a lower peak of activations"),
        Advice("--max-num-seqs lower", "smaller activations and graphs"),
        *no_graphs(context),
        Advice("quantized weights", "half or a quarter of the size", half_bytes),
        *more_cards(context, half_bytes),
    )
    no_help = (
        NO_ALLOCATOR,
        Advice("--kv-cache-dtype fp8", "no memory is left for a KV cache of any type"),
        Advice("--gpu-memory-utilization lower", "the share is what ran out"),
    )
    unknown = () if weights else ("how much the weights take",)
    if left is None:
        unknown = (*unknown, "by how much the share is exceeded")
    return Diagnosis.SERVER_BUDGET, why, AdviceSet(help_, no_help, unknown)


def _changed(refusal: VllmRefusal, context: LogContext) -> _Explained:
    before, after = refusal.free, refusal.available
    grown = after.bytes - before.bytes if before and after else 0
    why = (
        f"Another program freed {torch_size(max(grown, 0))} while vLLM measured its own memory "
        "use. The measurement is useless, so vLLM refuses to go on."
    )
    advice = AdviceSet(
        help=(
            Advice("start it again", "once the other program has gone"),
            Advice("--kv-cache-memory-bytes N", "skips the measurement"),
            Advice("one server a card at a time while they start", WHO_HOLDS_IT),
        ),
        no_help=(
            NO_ALLOCATOR,
            Advice("--gpu-memory-utilization lower", "vLLM checks it before it measures"),
        ),
        unknown=("which program it was",),
    )
    return Diagnosis.OUTSIDE, why, advice


def _warmup(refusal: VllmRefusal, context: LogContext) -> _Explained:
    requests = refusal.wanted_count or 0
    why = (
        f"vLLM ran out of memory while it warmed up for {requests:,} requests at once: the KV "
        "cache has taken its share, and logits and sampler buffers for so many requests do not "
        "fit beside it."
    )
    share = context.option("gpu_memory_utilization")
    lower = f" {lower_share(share, 1, 50):.2f}" if share and 0.05 < share <= 1 else " lower"
    help_ = (
        Advice(f"--max-num-seqs {max(requests // 4, 1)}", "smaller sampler buffers"),
        Advice(f"--gpu-memory-utilization{lower}", "leaves room beside the KV cache"),
        *no_graphs(context),
    )
    no_help = (Advice("--gpu-memory-utilization higher", "the KV cache would take it"),)
    return Diagnosis.SERVER_BUDGET, why, AdviceSet(help_, no_help, ("how much was missing",))


def _sequences(refusal: VllmRefusal, context: LogContext) -> _Explained:
    wanted, fitting = refusal.wanted_count or 0, refusal.fitting_count or 0
    why = (
        f"vLLM's budget is too small for {wanted:,} sequences at once: this model keeps a state "
        f"for each sequence, and {fitting:,} states fit beside its weights."
    )
    help_ = (Advice(f"--max-num-seqs {max(fitting, 1)}", "at most"), *higher_share(context, 0))
    no_help = (NO_ALLOCATOR, Advice("--max-model-len lower", "the state does not grow with it"))
    unknown = ("how many bytes one state takes",)
    return Diagnosis.SERVER_BUDGET, why, AdviceSet(help_, no_help, unknown)


def _shares(refusal: VllmRefusal, context: LogContext) -> tuple[Share, ...]:
    total, free = refusal.total, refusal.free
    if total is not None and free is not None and 0 <= free.bytes <= total.bytes:
        return (
            Share("in use before it started", total.bytes - free.bytes, ShareKind.OUTSIDE),
            Share("free", free.bytes, ShareKind.FREE),
        )
    return _budget_shares(context)


_BUDGET = (
    ("weights", "weights", ShareKind.ALLOCATED),
    ("activations", "activations", ShareKind.CACHED),
    ("non_torch", "outside torch", ShareKind.OUTSIDE),
    ("kv", "KV cache", ShareKind.FREE),
)


def _budget_shares(context: LogContext) -> tuple[Share, ...]:
    """VLLM's own account of its share, if the log has all of it."""
    parts = [(context.accounts.get(account), label, kind) for account, label, kind in _BUDGET]
    if any(size is None or size.bytes < 0 for size, _, _ in parts):
        return ()
    return tuple(
        Share(label, size.bytes, kind) for size, label, kind in parts if size and size.bytes
    )


_EXPLAIN: dict[VllmKind, Callable[[VllmRefusal, LogContext], _Explained]] = {
    VllmKind.FREE: _free,
    VllmKind.KV: _kv,
    VllmKind.TOKENS: _tokens,
    VllmKind.NO_KV: _no_kv,
    VllmKind.CHANGED: _changed,
    VllmKind.WARMUP: _warmup,
    VllmKind.SEQUENCES: _sequences,
}
