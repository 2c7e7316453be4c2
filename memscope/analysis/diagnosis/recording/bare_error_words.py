"""Explain errors without numbers by the readings just before them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memscope.analysis.diagnosis.advice import BLOCKING, FIRST_ERROR, WHO_HOLDS_IT, AdviceSet
from memscope.analysis.diagnosis.balance import CONTEXT_BYTES
from memscope.analysis.diagnosis.card import card_shares
from memscope.analysis.diagnosis.explanation import Advice, AdviceKind, Diagnosis, Explanation
from memscope.analysis.diagnosis.failed_request import lower_share
from memscope.analysis.diagnosis.recording.bare_error import MAX_AGE_NS, BareError
from memscope.analysis.diagnosis.torch_advice import advise
from memscope.analysis.timeline.oom_readings import name_processes
from memscope.units import format_seconds, torch_size

_NO_NUMBERS = "The error itself prints no numbers"


def explain_bare_error(found: Explanation, error: BareError) -> Explanation:
    """Add what the readings say to ``found``, which was explained from the text alone."""
    if not error.is_read:
        if len(error.devices) < 2:
            return found
        names = ", ".join(map(str, error.devices))
        note = f"It is unknown which device it was: this program used {names}."
        return replace(found, notes=(*found.notes, note))
    advice, message = _advice(error), error.message
    return replace(
        found,
        diagnosis=error.diagnosis,
        why=_why(error),
        device=message.device,
        device_name=error.request.place.partition(" (")[0],
        sizes_bytes=message.sizes_bytes,
        shares=card_shares(error.request.balance),
        help=advice.help,
        no_help=advice.no_help,
        unknown=advice.unknown,
    )


def _why(error: BareError) -> str:
    age = format_seconds(error.age_ns / 1e9)
    moment = f"{age} before the error {error.request.place} had {_size(error.message.free)} free"
    asked = error.request.wanted_bytes
    tail = f"The error asked for {torch_size(asked)}" if asked else _NO_NUMBERS
    if error.diagnosis is Diagnosis.OUTSIDE:
        return f"Memory outside torch: {moment}; {_holders(error)}. {tail}."
    if error.diagnosis is Diagnosis.TORCH_CACHE:
        return (
            f"Torch's cache left no room: {moment}. Torch held {_size(error.message.reserved)}; "
            f"{torch_size(error.cached_bytes)} of it was unused in its cache, where libraries and "
            f"the driver cannot use it. {tail}."
        )
    if error.diagnosis is Diagnosis.SHORTAGE:
        return (
            f"A real shortage: {moment}. Tensors held {_size(error.message.allocated)}, and "
            f"{torch_size(error.cached_bytes)} was unused in torch's cache. {tail}."
        )
    return _unknown_why(error, moment, tail)


def _unknown_why(error: BareError, moment: str, tail: str) -> str:
    if error.age_ns > MAX_AGE_NS:
        return f"{tail}, and the card was last read long before it: {moment}."
    if not error.is_full:
        return (
            f"{tail}. {moment[0].upper()}{moment[1:]}. Either the request was larger than that, or "
            "memory was taken after the reading, or something else ran out (pinned host memory, a "
            "limit of the driver)."
        )
    held = _holders(error)
    odd = ", which is more than the card has" if error.is_beyond_card else ""
    return f"{tail}. {moment[0].upper()}{moment[1:]}{'; ' if held else ''}{held}{odd}."


def _advice(error: BareError) -> AdviceSet:
    if error.diagnosis is Diagnosis.UNKNOWN:
        return _unknown_advice(error)
    if error.diagnosis is Diagnosis.TORCH_CACHE:
        return _cache_advice(error)
    advice = advise(error.diagnosis, error.request)
    if error.diagnosis is Diagnosis.SHORTAGE:
        return replace(advice, unknown=(*advice.unknown, *_unknown_size(error)))
    return _outside_advice(error, advice)


def _outside_advice(error: BareError, advice: AdviceSet) -> AdviceSet:
    """``advice`` against memory outside torch, with what the readings know better."""
    flush = tuple(_empty_cache(error))
    help_ = (
        *_stop_others(error),
        *(each for each in advice.help if each.kind is not AdviceKind.STOP_OTHERS),
        *_own_outside(error),
        *flush,
    )
    # An unread cache may be large: then nothing says that emptying it would not help.
    is_flush_open = bool(flush) or error.request.balance.cached_bytes is None
    no_help = tuple(
        each
        for each in advice.no_help
        if not (each.kind is AdviceKind.EMPTY_CACHE and is_flush_open)
    )
    unknown = () if error.others else (f"which programs they are: {WHO_HOLDS_IT}",)
    return AdviceSet(help_, no_help, (*unknown, *_unknown_size(error)))


def _holders(error: BareError) -> str:
    """Who held how much of the card, as a clause."""
    balance, message, others = error.request.balance, error.message, error.others_bytes
    parts = []
    if others is not None:
        parts.append(f"other programs and the driver held {torch_size(others)}{_listed(error)}")
    elif balance.outside_bytes is not None:
        size = torch_size(max(balance.outside_bytes, 0))
        parts.append(f"other programs, or this one outside torch, held {size}{_listed(error)}")
    if balance.own_outside_bytes is not None:
        parts.append(f"this program outside torch {torch_size(balance.own_outside_bytes)}")
    if message.reserved is not None:
        cached = f", {torch_size(error.cached_bytes)} of it unused" if error.cached_bytes else ""
        parts.append(f"torch {torch_size(message.reserved.bytes)}{cached}")
    elif message.process is not None:
        parts.append(f"this program {torch_size(message.process.bytes)}")
    return ", ".join(parts)


def _listed(error: BareError) -> str:
    if error.mixed:
        return f" (the driver lists {name_processes(error.mixed)}; one may be this one)"
    return f" ({name_processes(error.others)})" if error.others else ""


def _stop_others(error: BareError) -> Iterator[Advice]:
    others = error.others_bytes
    if others is None or others > CONTEXT_BYTES:
        held = others if others is not None else error.request.balance.outside_bytes
        names = name_processes(error.others) or WHO_HOLDS_IT
        yield Advice("stop what else runs on the card", names, held, AdviceKind.STOP_OTHERS)


def _own_outside(error: BareError) -> Iterator[Advice]:
    own = error.request.balance.own_outside_bytes
    if own is not None and own > CONTEXT_BYTES:
        reason = "shows what libraries of this program hold outside torch"
        yield Advice("memscope run --cupti", reason, own)


def _empty_cache(error: BareError) -> Iterator[Advice]:
    if error.releasable_bytes >= error.needed_bytes and error.request.is_library:
        reason = "at most, before it; gives back segments without tensors"
        yield Advice(
            "torch.cuda.empty_cache()", reason, error.releasable_bytes, AdviceKind.EMPTY_CACHE
        )


def _cache_advice(error: BareError) -> AdviceSet:
    return AdviceSet(
        help=(
            *_empty_cache(error),
            *_lower_fraction(error),
            Advice(
                "the library's first call before the large tensors",
                "it then keeps its handle",
            ),
        ),
        no_help=advise(Diagnosis.UNKNOWN, error.request).no_help,
        unknown=_unknown_size(error),
    )


def _lower_fraction(error: BareError) -> Iterator[Advice]:
    message, needed = error.message, error.needed_bytes
    if message.total is None or message.reserved is None or message.free is None:
        return
    total = message.total.bytes  # two readings of two moments may come to more
    held = min(message.reserved.bytes + message.free.bytes, total)
    fraction = lower_share(held / total, needed, total)
    if fraction > 0:
        setting = f"torch.cuda.set_per_process_memory_fraction({fraction})"
        yield Advice(setting, f"at most; leaves {torch_size(needed)} beside torch's pool")


def _unknown_size(error: BareError) -> tuple[str, ...]:
    return () if error.request.wanted_bytes else ("how much was requested: the error does not say",)


def _unknown_advice(error: BareError) -> AdviceSet:
    if error.is_full and error.request.is_library:
        return advise(Diagnosis.UNKNOWN, error.request)
    return AdviceSet(
        help=(FIRST_ERROR, BLOCKING),
        no_help=(Advice("guess at a setting", "none follows from these readings"),),
        unknown=("what was requested, and what ran out: the error does not say",),
    )


def _size(size: object) -> str:
    count = getattr(size, "bytes", None)
    return "an unknown amount" if count is None else torch_size(count)
