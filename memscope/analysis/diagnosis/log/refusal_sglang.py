"""Why SGLang refused to start, or to go on, and what would have let it."""

from __future__ import annotations

from typing import TypeAlias

from memscope.analysis.diagnosis.counsel import WHO_HOLDS_IT, Counsel
from memscope.analysis.diagnosis.explanation import Advice
from memscope.analysis.diagnosis.situation import raise_share, torch_size
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.servers import Refusal

# Diagnosis, paragraph and advice.
Explained: TypeAlias = tuple[str, str, Counsel]

NO_ALLOCATOR = Advice("PYTORCH_CUDA_ALLOC_CONF=...", "the budget is counted before it matters")


def explain_no_kv(refusal: Refusal, context: LogContext) -> Explained:
    """The weights take the whole static share."""
    before, after = context.accounts.get("before_weights"), context.accounts.get("after_weights")
    fraction = refusal.utilization or context.option("mem_fraction_static")
    is_measured = before is not None and after is not None and before.bytes > after.bytes > 0
    spent = (
        f" {torch_size(before.bytes - after.bytes)} of weights took {torch_size(before.bytes)} "
        f"down to {torch_size(after.bytes)}."
        if is_measured and before and after
        else ""
    )
    share = f" ({fraction:g})" if fraction else ""
    why = (
        f"SGLang has no memory for the KV cache: the weights take its static share of the "
        f"card{share}.{spent}"
    )
    help_ = []
    if is_measured and before and after:
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
        Advice("--mem-fraction-static lower", "helps when it serves, not here"),
        Advice("--context-length lower", "not even one page is left"),
        NO_ALLOCATOR,
    )
    unknown = () if is_measured else ("how much was free before and after the weights",)
    return "server_budget", why, Counsel(tuple(help_), no_help, unknown)


def explain_unbalanced(refusal: Refusal, context: LogContext) -> Explained:
    """One card of several has less free."""
    least, local = refusal.free, refusal.available
    amounts = (
        f" One has {torch_size(least.bytes)} free and another {torch_size(local.bytes)}."
        if least and local
        else ""
    )
    why = (
        f"SGLang found its cards unequally free: something else holds memory on one of "
        f"them.{amounts}"
    )
    missing = max(local.bytes - least.bytes, 0) if least and local else None
    return (
        "outside",
        why,
        Counsel(
            help=(
                Advice("stop what else runs on the cards", WHO_HOLDS_IT, missing),
                Advice("--mem-fraction-static lower", "counted on the fullest card"),
            ),
            no_help=(NO_ALLOCATOR,),
            unknown=("which card and which program",),
        ),
    )


def explain_slots(refusal: Refusal, context: LogContext) -> Explained:
    """KV cache or request slots ran out while serving; TGI's words are alike."""
    name = "TGI" if refusal.server == "tgi" else "SGLang"
    tokens = (
        f": {refusal.wanted:,} tokens were needed and {refusal.fitting:,} were left"
        if refusal.wanted and refusal.fitting is not None and refusal.fitting < refusal.wanted
        else ""
    )
    why = f"{name}'s own KV cache or request slots ran out while it served{tokens}."
    if refusal.server == "tgi":
        help_ = [Advice("--max-batch-prefill-tokens lower", "the peak follows it")]
    else:
        help_ = [
            Advice("--max-running-requests lower", "fewer requests share the KV cache"),
            Advice("--mem-fraction-static higher", "a larger KV cache"),
            Advice("--chunked-prefill-size lower", "fewer tokens at once"),
        ]
    return (
        "server_budget",
        why,
        Counsel(tuple(help_), (NO_ALLOCATOR,), ("which requests held it",)),
    )
