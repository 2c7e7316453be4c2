"""Why an inference server refused to start, and what would have let it."""

from __future__ import annotations

from collections.abc import Callable

from memscope.analysis.diagnosis.balance import CONTEXT_BYTES, OUTSIDE_SHARE
from memscope.analysis.diagnosis.counsel import WHO_HOLDS_IT, Counsel
from memscope.analysis.diagnosis.explanation import Advice, Explanation, Share
from memscope.analysis.diagnosis.log.refusal_flags import (
    half_kv,
    half_request,
    has_small_kv,
    more_cards,
    no_graphs,
)
from memscope.analysis.diagnosis.log.refusal_sglang import (
    NO_ALLOCATOR,
    Explained,
    explain_no_kv,
    explain_slots,
    explain_unbalanced,
)
from memscope.analysis.diagnosis.server_share import higher_share, is_hopeless, unknown_share
from memscope.analysis.diagnosis.situation import lower_share, torch_size
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.servers import Refusal

_OVERLARGE = "more than the card has"


def explain_refusal(refusal: Refusal, context: LogContext) -> Explanation:
    """The explanation of one refusal."""
    diagnosis, why, counsel = _EXPLAIN[refusal.kind](refusal, context)
    amounts = {
        name: size.bytes
        for name in ("requested", "total", "free")
        if (size := getattr(refusal, name)) is not None
    }
    return Explanation(
        diagnosis=diagnosis,
        why=why,
        device=refusal.device,
        device_name=_device_name(refusal),
        amounts=amounts,
        shares=_shares(refusal, context),
        help=counsel.help,
        no_help=counsel.no_help,
        unknown=counsel.unknown,
    )


def _device_name(refusal: Refusal) -> str:
    if refusal.device is not None:
        return f"GPU {refusal.device}"
    return "card" if refusal.total is not None else "the server's share"


def _free(refusal: Refusal, context: LogContext) -> Explained:
    total, free, wanted = refusal.total, refusal.free, refusal.requested
    if total is None or free is None or wanted is None:
        return "unknown", "vLLM found less memory free than it wants.", Counsel()
    if total.bytes < max(free.bytes, wanted.bytes, 1):
        return "unknown", "vLLM wants more than is free; its numbers do not fit a card.", Counsel()
    used = total.bytes - free.bytes
    missing = max(wanted.bytes - free.bytes, 0)
    share = free.bytes * 100 // total.bytes / 100
    beyond = used - CONTEXT_BYTES
    has_others = beyond >= missing or beyond * OUTSIDE_SHARE > total.bytes
    held = (
        "something else holds the card"
        if has_others
        else "about what a context and the driver take by themselves: the share is too large"
    )
    why = (
        f"vLLM wants {torch_size(wanted.bytes)} of {torch_size(total.bytes)} "
        f"(--gpu-memory-utilization {refusal.utilization:g}), and {torch_size(free.bytes)} was "
        f"free when it started. {torch_size(used)} was in use before it had loaded anything: "
        f"{held}."
    )
    stop = Advice("stop what else runs on the card", WHO_HOLDS_IT, missing)
    smaller = Advice(f"--gpu-memory-utilization {share:.2f}", "at most, with what is free now")
    counsel = Counsel(
        help=(
            *((stop,) if has_others else ()),
            *((smaller,) if share else ()),
            *(
                (Advice("another card: CUDA_VISIBLE_DEVICES", "an empty one"),)
                if has_others
                else ()
            ),
        ),
        no_help=(
            NO_ALLOCATOR,
            Advice("--max-model-len lower", "the share is compared before the model is looked at"),
        ),
        unknown=(("who holds the rest",) if has_others else ())
        + ("whether weights and KV cache fit into the smaller share",),
    )
    return ("outside" if has_others else "server_budget"), why, counsel


def _kv(refusal: Refusal, context: LogContext) -> Explained:
    needed, available = refusal.requested, refusal.available
    if needed is None or available is None:
        return "server_budget", "One request of full length does not fit.", Counsel()
    missing = max(needed.bytes - available.bytes, 0)
    length = f" ({refusal.wanted:,} tokens)" if refusal.wanted else ""
    fits = f" {refusal.fitting:,} tokens would fit." if refusal.fitting else ""
    why = (
        f"vLLM's budget is too small for one request of full length{length}: it needs "
        f"{torch_size(needed.bytes)} of KV cache and {torch_size(available.bytes)} is left after "
        f"weights and activations, {torch_size(missing)} too little.{fits}"
    )
    help_ = []
    if refusal.fitting:
        help_.append(Advice(f"--max-model-len {refusal.fitting}", "at most", missing))
    else:
        help_.append(Advice("--max-model-len lower", "KV cache grows with it", missing))
    help_ += [*half_kv(context, needed.bytes, available.bytes), *higher_share(context, missing)]
    help_ += [*no_graphs(context), *half_request(context, needed.bytes, available.bytes)]
    no_help = [NO_ALLOCATOR, Advice("--max-num-seqs lower", "one request alone does not fit")]
    if is_hopeless(context, missing):
        no_help.append(Advice("--gpu-memory-utilization higher alone", _OVERLARGE))
    return "server_budget", why, Counsel(tuple(help_), tuple(no_help), unknown_share(context))


def _tokens(refusal: Refusal, context: LogContext) -> Explained:
    wanted, fitting = refusal.wanted or 0, refusal.fitting or 0
    why = (
        f"vLLM's budget is too small for one request of full length: {wanted:,} tokens are "
        f"allowed and the KV cache that is left after weights and activations holds {fitting:,}."
    )
    halved = ", which is enough" if 2 * fitting >= wanted else ", not enough alone"
    help_ = [Advice(f"--max-model-len {fitting}", "at most")] if fitting else []
    if not has_small_kv(context):
        help_.append(Advice("--kv-cache-dtype fp8", f"holds twice the tokens{halved}"))
    missing = _kv_of(context, wanted, fitting)
    help_ += [*higher_share(context, missing), *no_graphs(context), *more_cards(context, None)]
    no_help = (NO_ALLOCATOR, Advice("--max-num-seqs lower", "one request alone does not fit"))
    unknown = ("the bytes of KV cache a token", *unknown_share(context))
    return "server_budget", why, Counsel(tuple(help_), no_help, unknown)


def _kv_of(context: LogContext, wanted: int, fitting: int) -> int:
    """Bytes of KV cache that ``wanted`` tokens lack; 0 where the log does not tell."""
    available = context.accounts.get("kv")
    if available is None or available.bytes <= 0 or not fitting:
        return 0
    return max(-(-available.bytes * (wanted - fitting) // fitting), 0)


def _no_kv(refusal: Refusal, context: LogContext) -> Explained:
    if refusal.server == "sglang":
        return explain_no_kv(refusal, context)
    left = context.accounts.get("kv")
    weights = context.accounts.get("weights")
    deficit = max(-left.bytes, 0) if left is not None else None
    spent = f" ({torch_size(weights.bytes)} of weights)" if weights else ""
    short = f", {torch_size(deficit)} more than it" if deficit else ""
    why = (
        f"vLLM has no memory for the KV cache: weights{spent} and activations take its share of "
        f"the card{short}."
    )
    help_ = [
        *higher_share(context, deficit or 0),
        Advice("--max-num-batched-tokens lower", "the peak of activations follows it"),
        Advice("--max-num-seqs lower", "smaller activations and graphs"),
        *no_graphs(context),
        Advice(
            "quantized weights",
            "half or a quarter of them",
            weights.bytes // 2 if weights else None,
        ),
        *more_cards(context, weights.bytes // 2 if weights else None),
    ]
    no_help = (
        NO_ALLOCATOR,
        Advice("--kv-cache-dtype fp8", "nothing is left for a KV cache of any type"),
        Advice("--gpu-memory-utilization lower", "the share is what ran out"),
    )
    unknown = [] if weights else ["how much the weights take"]
    if left is None:
        unknown.append("by how much the share is exceeded")
    return "server_budget", why, Counsel(tuple(help_), no_help, tuple(unknown))


def _changed(refusal: Refusal, context: LogContext) -> Explained:
    before, after = refusal.free, refusal.available
    grown = after.bytes - before.bytes if before and after else 0
    why = (
        f"Another program gave {torch_size(max(grown, 0))} back while vLLM measured its own use, "
        "so that the measurement makes no sense; vLLM refuses to go on."
    )
    return (
        "outside",
        why,
        Counsel(
            help=(
                Advice("start it again", "once the other program has gone"),
                Advice("--kv-cache-memory-bytes N", "skips the measurement"),
                Advice("one server a card at a time while they start", WHO_HOLDS_IT),
            ),
            no_help=(
                NO_ALLOCATOR,
                Advice("--gpu-memory-utilization lower", "it is compared first"),
            ),
            unknown=("which program it was",),
        ),
    )


def _warmup(refusal: Refusal, context: LogContext) -> Explained:
    requests = refusal.wanted or 0
    why = (
        f"vLLM ran out while it warmed up for {requests:,} requests at once: the KV cache has its "
        "share already, and logits and sampler buffers for so many do not fit beside it."
    )
    share = context.option("gpu_memory_utilization")
    lower = f" {lower_share(share, 1, 50):.2f}" if share and 0.05 < share <= 1 else " lower"
    help_ = (
        Advice(f"--max-num-seqs {max(requests // 4, 1)}", "sampler buffers follow it"),
        Advice(f"--gpu-memory-utilization{lower}", "leaves room beside the KV cache"),
        *no_graphs(context),
    )
    no_help = (Advice("--gpu-memory-utilization higher", "the KV cache would take it"),)
    return "server_budget", why, Counsel(help_, no_help, ("how much was missing",))


def _sequences(refusal: Refusal, context: LogContext) -> Explained:
    wanted, fitting = refusal.wanted or 0, refusal.fitting or 0
    why = (
        f"vLLM's budget is too small for {wanted:,} sequences at once: this model keeps a state a "
        f"sequence, and {fitting:,} fit beside its weights."
    )
    help_ = (
        Advice(f"--max-num-seqs {max(fitting, 1)}", "at most"),
        *higher_share(context, 0),
    )
    no_help = (NO_ALLOCATOR, Advice("--max-model-len lower", "the state does not grow with it"))
    return "server_budget", why, Counsel(help_, no_help, ("the bytes of one state",))


def _shares(refusal: Refusal, context: LogContext) -> tuple[Share, ...]:
    total, free = refusal.total, refusal.free
    if total is not None and free is not None and 0 <= free.bytes <= total.bytes:
        return (
            Share("in use before it started", total.bytes - free.bytes, "x"),
            Share("free", free.bytes, "."),
        )
    return _budget_shares(context)


def _budget_shares(context: LogContext) -> tuple[Share, ...]:
    """vLLM's account of its share, where the log has all of it."""
    names = {"weights": "#", "activations": "=", "non_torch": "x", "kv": "."}
    parts = {name: context.accounts.get(name) for name in names}
    if any(part is None or part.bytes < 0 for part in parts.values()):
        return ()
    labels = {"kv": "KV cache", "non_torch": "outside torch"}
    return tuple(
        Share(labels.get(name, name), part.bytes, names[name])
        for name, part in parts.items()
        if part is not None and part.bytes
    )


_EXPLAIN: dict[str, Callable[[Refusal, LogContext], Explained]] = {
    "free": _free,
    "kv": _kv,
    "tokens": _tokens,
    "no_kv": _no_kv,
    "changed": _changed,
    "warmup": _warmup,
    "unbalanced": explain_unbalanced,
    "slots": explain_slots,
    "sequences": _sequences,
}
