"""Explain SGLang's refusals to start or to go on, and one of TGI's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from memscope.analysis.diagnosis.advice import NO_ALLOCATOR, WHO_HOLDS_IT, AdviceSet
from memscope.analysis.diagnosis.explanation import Advice, Diagnosis, Explanation
from memscope.analysis.diagnosis.failed_request import raise_share
from memscope.interop.oom_log.context import LogContext, Server
from memscope.interop.oom_log.formats.sglang import SglangKind, SglangRefusal
from memscope.units import torch_size

_Explained: TypeAlias = tuple[Diagnosis, str, AdviceSet]


def explain(refusal: SglangRefusal, context: LogContext) -> Explanation:
    """Explain one refusal."""
    diagnosis, why, advice = _EXPLAIN[refusal.kind](refusal, context)
    return Explanation(
        diagnosis=diagnosis,
        why=why,
        sizes_bytes=refusal.sizes_bytes,
        help=advice.help,
        no_help=advice.no_help,
        unknown=advice.unknown,
    )


def _no_kv(refusal: SglangRefusal, context: LogContext) -> _Explained:
    """The weights take the whole static share."""
    before, after = context.accounts.get("before_weights"), context.accounts.get("after_weights")
    fraction = refusal.share or context.option("mem_fraction_static")
    share = f" ({fraction:g})" if fraction else ""
    why = f"SGLang has no memory left for the KV cache: weights take its static share{share}."
    is_measured = before is not None and after is not None and before.bytes > after.bytes > 0
    help_ = []
    if is_measured and before and after:
        why += (
            f" {torch_size(before.bytes)} was free before it loaded "
            f"{torch_size(before.bytes - after.bytes)} of weights, {torch_size(after.bytes)} after."
        )
        least = raise_share(1 - after.bytes / before.bytes, 1, before.bytes)
        if least < 1:
            help_.append(Advice(f"--mem-fraction-static {least:.2f}", "more than this"))
    else:
        help_.append(Advice("--mem-fraction-static higher", "it holds weights and KV cache"))
    help_ += [
        Advice("--max-running-requests lower", "smaller state and buffers"),
        Advice("--tp-size higher, quantized weights", "fewer bytes of weights a card"),
    ]
    no_help = (
        Advice("--mem-fraction-static lower", "that helps while serving, not here"),
        Advice("--context-length lower", "not even one page is left"),
        NO_ALLOCATOR,
    )
    unknown = () if is_measured else ("how much was free before and after the weights",)
    return Diagnosis.SERVER_BUDGET, why, AdviceSet(tuple(help_), no_help, unknown)


def _unbalanced(refusal: SglangRefusal, context: LogContext) -> _Explained:
    """One card of several has less free."""
    least, local = refusal.free, refusal.available
    why = "SGLang's cards do not have the same free memory: something else uses one of them."
    if least and local:
        why += f" One has {torch_size(least.bytes)} free, another {torch_size(local.bytes)}."
    missing = max(local.bytes - least.bytes, 0) if least and local else None
    advice = AdviceSet(
        help=(
            Advice("stop what else runs on the cards", WHO_HOLDS_IT, missing),
            Advice("--mem-fraction-static lower", "it applies to the fullest card"),
        ),
        no_help=(NO_ALLOCATOR,),
        unknown=("which card and which program",),
    )
    return Diagnosis.OUTSIDE, why, advice


def _slots(refusal: SglangRefusal, context: LogContext) -> _Explained:
    """KV cache or request slots ran out while serving."""
    wanted, left = refusal.wanted_count, refusal.fitting_count
    tokens = ""
    if wanted and left is not None and left < wanted:
        tokens = f": {wanted:,} tokens were needed and {left:,} were left"
    is_tgi = refusal.server is Server.TGI
    name = "TGI" if is_tgi else "SGLang"
    why = f"{name}'s own KV cache or request slots ran out while it served{tokens}."
    help_: tuple[Advice, ...] = (
        Advice("--max-running-requests lower", "fewer requests share the KV cache"),
        Advice("--mem-fraction-static higher", "a larger KV cache"),
        Advice("--chunked-prefill-size lower", "fewer tokens at once"),
    )
    if is_tgi:
        help_ = (Advice("--max-batch-prefill-tokens lower", "a lower peak"),)
    return (
        Diagnosis.SERVER_BUDGET,
        why,
        AdviceSet(help_, (NO_ALLOCATOR,), ("which requests held it",)),
    )


_EXPLAIN: dict[SglangKind, Callable[[SglangRefusal, LogContext], _Explained]] = {
    SglangKind.NO_KV: _no_kv,
    SglangKind.UNBALANCED: _unbalanced,
    SglangKind.SLOTS: _slots,
}
