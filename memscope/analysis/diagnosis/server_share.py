"""vLLM's share of the card, `--gpu-memory-utilization`: how far to raise it, and whether it can be.

The share is a fraction of the whole card, so that bytes become one only where the log tells the
card's size.
"""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.explanation import Advice
from memscope.analysis.diagnosis.situation import raise_share, torch_size
from memscope.interop.oom_log.context import LogContext

_FLAG = "--gpu-memory-utilization"
# More than this share of a card is not to be had: context and libraries take the rest.
_HIGHEST_SHARE = 0.98


def card_total(context: LogContext) -> int | None:
    """Bytes of the card as the log has them, or as its budget gives them."""
    total, budget = context.accounts.get("total"), context.accounts.get("budget")
    if total is not None and total.bytes > 0:
        return total.bytes
    share = known_share(context)
    found = round(budget.bytes / share) if budget is not None and share else 0
    return found or None


def known_share(context: LogContext) -> float | None:
    """The share that the log names, where it is one."""
    share = context.option("gpu_memory_utilization")
    return share if share is not None and 0 < share <= 1 else None


def higher_share(context: LogContext, missing: int) -> Iterator[Advice]:
    """A share with room for ``missing`` bytes more; 0 where the log does not say how many."""
    total, share = card_total(context), known_share(context)
    if is_hopeless(context, missing):
        return
    if not missing:
        above = "higher" if share is None else f"above {share:.2f}"
        yield Advice(f"{_FLAG} {above}", "a share of the card; the log does not say how far")
    elif total is None:
        above = "higher" if share is None else f"above {share:.2f}"
        reason = f"a share of the card: add {torch_size(missing)} / its size (nvidia-smi)"
        if share is not None:
            reason += f"; {_HIGHEST_SHARE - share:.2f} of it at most is left"
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
    """Whether no higher share can be had, or the card is known to be too small for any."""
    total, share = card_total(context), known_share(context)
    if total is None or share is None:
        return share is not None and share >= _HIGHEST_SHARE
    return raise_share(share, max(missing, 1), total) > _HIGHEST_SHARE


def unknown_share(context: LogContext) -> tuple[str, ...]:
    """What the log leaves open."""
    total, share = card_total(context), known_share(context)
    if total is not None and share is not None:
        return ()
    if total is not None:
        return ("the share that it had: the log does not name it (vLLM's own default is 0.9)",)
    return ("the card's size: a share follows from it, and the log has no line with it",)
