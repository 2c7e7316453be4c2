"""What the readings before an error without numbers say, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memscope.analysis.diagnosis.advice import advise
from memscope.analysis.diagnosis.balance import CONTEXT_BYTES
from memscope.analysis.diagnosis.card import card_shares
from memscope.analysis.diagnosis.counsel import WHO_HOLDS_IT, Counsel
from memscope.analysis.diagnosis.explanation import AMOUNTS, Advice, Explanation
from memscope.analysis.diagnosis.recording.silent import MAX_AGE_NS, SilentError
from memscope.analysis.diagnosis.situation import lower_share, torch_size
from memscope.analysis.timeline.oom_readings import name_processes
from memscope.units import format_seconds

_EMPTY_CACHE = "torch.cuda.empty_cache()"
_NO_AMOUNTS = "The error itself prints no numbers"
_FIRST_ERROR = Advice("look at the first error in the log", "this one may follow from it")
_BLOCKING = Advice("CUDA_LAUNCH_BLOCKING=1", "the traceback then shows the true place")


def explain_silent(found: Explanation, error: SilentError) -> Explanation:
    """``found``, which the text alone gave, with what the readings say besides."""
    if not error.is_read:
        if len(error.devices) < 2:
            return found
        names = ", ".join(map(str, error.devices))
        note = f"Which device it was is not known: this program used {names}."
        return replace(found, notes=(*found.notes, note))
    counsel, message = _counsel(error), error.message
    return replace(
        found,
        diagnosis=error.diagnosis,
        why=_why(error),
        device=message.device,
        device_name=error.situation.place.partition(" (")[0],
        amounts={
            name: size.bytes for name in AMOUNTS if (size := getattr(message, name)) is not None
        },
        shares=card_shares(error.situation.balance),
        help=counsel.help,
        no_help=counsel.no_help,
        unknown=counsel.unknown,
    )


def _why(error: SilentError) -> str:
    """The paragraph."""
    room = f"{error.situation.place} had {_size(error.message.free)} free"
    moment = f"{format_seconds(error.age_ns / 1e9)} before the error {room}"
    asked = error.situation.wanted
    tail = f"The error asked for {torch_size(asked)}" if asked else _NO_AMOUNTS
    if error.diagnosis == "outside":
        return f"Memory outside torch: {moment}; {_holders(error)}. {tail}."
    if error.diagnosis == "torch_cache":
        return (
            f"Torch's cache left no room: {moment}; torch held {_size(error.message.reserved)}, of "
            f"which {torch_size(error.cached_bytes)} lay unused in its cache, where libraries and "
            f"the driver cannot take it. {tail}."
        )
    if error.diagnosis == "shortage":
        return (
            f"A real shortage: {moment}; tensors held {_size(error.message.allocated)}, and "
            f"{torch_size(error.cached_bytes)} lay unused in torch's cache. {tail}."
        )
    return _unknown_why(error, moment, tail)


def _counsel(error: SilentError) -> Counsel:
    """What would help and what would not."""
    if error.diagnosis == "unknown":
        return _unknown_counsel(error)
    if error.diagnosis == "torch_cache":
        return _cache_counsel(error)
    found = advise(error.diagnosis, error.situation)
    if error.diagnosis == "shortage":
        return Counsel(found.help, found.no_help, (*found.unknown, *_unasked(error)))
    help_ = (*_stop_others(error), *found.help[1:], *_own_outside(error), *_empty_cache(error))
    settings = {each.setting for each in help_}
    if error.situation.balance.cached is None:
        settings.add(_EMPTY_CACHE)  # nobody read what it would give back
    no_help = tuple(each for each in found.no_help if each.setting not in settings)
    unknown = () if error.others else (f"which programs they are: {WHO_HOLDS_IT}",)
    return Counsel(help_, no_help, (*unknown, *_unasked(error)))


def _unknown_why(error: SilentError, moment: str, tail: str) -> str:
    if error.age_ns > MAX_AGE_NS:
        return f"{tail}, and the card was last read long before it: {moment}."
    if not error.is_full:
        return (
            f"{tail}. {moment[0].upper()}{moment[1:]}: the request was larger than that, memory "
            "was taken after the reading, or it was not the card's memory that ran out (pinned "
            "host memory, a limit of the driver)."
        )
    held = _holders(error)
    odd = ", which is more than the card has" if error.is_beyond_card else ""
    return f"{tail}. {moment[0].upper()}{moment[1:]}{'; ' if held else ''}{held}{odd}."


def _holders(error: SilentError) -> str:
    """Who held the card, in numbers."""
    balance, message, others = error.situation.balance, error.message, error.others_bytes
    parts = []
    if others is not None:
        parts.append(f"other programs and the driver held {torch_size(others)}{_listed(error)}")
    elif balance.outside is not None:
        size = torch_size(max(balance.outside, 0))
        parts.append(f"other programs, or this one beside torch, held {size}{_listed(error)}")
    if balance.own_outside is not None:
        parts.append(f"this program outside torch {torch_size(balance.own_outside)}")
    if message.reserved is not None:
        cached = f", {torch_size(error.cached_bytes)} of it unused" if error.cached_bytes else ""
        parts.append(f"torch {torch_size(message.reserved.bytes)}{cached}")
    elif message.process is not None:
        parts.append(f"this program {torch_size(message.process.bytes)}")
    return ", ".join(parts)


def _listed(error: SilentError) -> str:
    if error.mixed:
        return f" (the driver lists {name_processes(error.mixed)}; one may be this one)"
    return f" ({name_processes(error.others)})" if error.others else ""


def _stop_others(error: SilentError) -> Iterator[Advice]:
    others = error.others_bytes
    if others is None or others > CONTEXT_BYTES:
        held = others if others is not None else error.situation.balance.outside
        yield Advice(
            "stop what else runs on the card", name_processes(error.others) or WHO_HOLDS_IT, held
        )


def _own_outside(error: SilentError) -> Iterator[Advice]:
    own = error.situation.balance.own_outside
    if own is not None and own > CONTEXT_BYTES:
        reason = "names what libraries of this program hold beside torch"
        yield Advice("memscope run --cupti", reason, own)


def _empty_cache(error: SilentError) -> Iterator[Advice]:
    if error.releasable_bytes >= error.needed_bytes and error.situation.is_library:
        reason = "at most, before it; gives segments back that no tensor is in"
        yield Advice(_EMPTY_CACHE, reason, error.releasable_bytes)


def _cache_counsel(error: SilentError) -> Counsel:
    return Counsel(
        help=(
            *_empty_cache(error),
            *_lower_fraction(error),
            Advice("the library's first call before the large tensors", "it keeps its handle"),
        ),
        no_help=advise("unknown", error.situation).no_help,
        unknown=_unasked(error),
    )


def _lower_fraction(error: SilentError) -> Iterator[Advice]:
    message, needed = error.message, error.needed_bytes
    if message.total is None or message.reserved is None or message.free is None:
        return
    total = message.total.bytes  # two readings of two moments may come to more
    held = min(message.reserved.bytes + message.free.bytes, total)
    fraction = lower_share(held / total, needed, total)
    if fraction > 0:
        setting = f"torch.cuda.set_per_process_memory_fraction({fraction})"
        yield Advice(setting, f"at most; leaves {torch_size(needed)} beside torch's pool")


def _unasked(error: SilentError) -> tuple[str, ...]:
    return () if error.situation.wanted else ("how much was asked for: the error does not say",)


def _unknown_counsel(error: SilentError) -> Counsel:
    if error.is_full and error.situation.is_library:
        return advise("unknown", error.situation)
    return Counsel(
        help=(_FIRST_ERROR, _BLOCKING),
        no_help=(Advice("guess at a setting", "none follows from these readings"),),
        unknown=("what was asked for, and what ran out: the error does not say",),
    )


def _size(size: object) -> str:
    count = getattr(size, "bytes", None)
    return "an unknown amount" if count is None else torch_size(count)
