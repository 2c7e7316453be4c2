"""Why memory ran out, from the text of a log: one diagnosis, its proof, and what would help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from memscope.analysis.diagnosis.advice import advise
from memscope.analysis.diagnosis.balance import Balance, decide
from memscope.analysis.diagnosis.card import card_shares
from memscope.analysis.diagnosis.explanation import AMOUNTS, Explanation, Failure
from memscope.analysis.diagnosis.log.host import explain_host
from memscope.analysis.diagnosis.log.incident import (
    Victim,
    failure_starts,
    has_comparable_times,
    saw_first,
    victims_of,
)
from memscope.analysis.diagnosis.log.node import SLURM_JOB, explain_node
from memscope.analysis.diagnosis.log.others import help_others
from memscope.analysis.diagnosis.log.refusal import explain_refusal
from memscope.analysis.diagnosis.log.runtimes import explain_runtime
from memscope.analysis.diagnosis.log.xla import explain_xla
from memscope.analysis.diagnosis.log.xla_library import explain_xla_library
from memscope.analysis.diagnosis.server_advice import server_help, server_no_help
from memscope.analysis.diagnosis.situation import Situation, torch_size
from memscope.analysis.diagnosis.words import write_why
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.host import HostMessage
from memscope.interop.oom_log.formats.node import NodeMessage
from memscope.interop.oom_log.formats.registry import Message
from memscope.interop.oom_log.formats.runtimes import RuntimeMessage
from memscope.interop.oom_log.formats.torch import OomMessage
from memscope.interop.oom_log.formats.xla import XlaMessage
from memscope.interop.oom_log.lines import plain
from memscope.interop.oom_log.reader import LogReading

_KILLED = re.compile(r"\bKilled\b")
KILLED_ADVICE = (
    "Something ended it from outside. Where that was the kernel, host memory ran out, not the "
    "GPU's: `dmesg` names the process, `kubectl describe pod` says OOMKilled (exit code 137), and "
    "`sacct -j JOB` OUT_OF_MEMORY."
)


def explain_reading(reading: LogReading) -> Explanation:
    """The explanation of the last failure that ``reading`` found, and who else ran out in it."""
    victims = victims_of(reading)
    if not victims:
        return _nothing(reading)
    whole = _whole_context(reading)
    explained = [_explain_victim(each, whole, is_alone=len(victims) == 1) for each in victims]
    return replace(
        explained[0],
        help=(*explained[0].help, *help_others(victims, explained)),
        notes=(*explained[0].notes, *_notes(reading, victims)),
        failures=tuple(map(_failure, victims, explained)),
    )


def _whole_context(reading: LogReading) -> LogContext:
    """What the log says anywhere, its messages included; a card's size where all have the same."""
    context = reading.context.copy()
    context.servers |= reading.servers
    messages = [each.message for each in reading.found]
    nodes = [each for each in messages if isinstance(each, NodeMessage)]
    totals = {each.total for each in messages if each.total and not isinstance(each, NodeMessage)}
    if len(totals) == 1:
        context.accounts.setdefault("total", *totals)
    for name, amount in (("host_limit", "limit"), ("host_held", "allocated")):
        sizes = {getattr(kill, amount) for kill in _kills(reading)} - {None}
        if len(sizes) == 1:
            context.accounts.setdefault(name, *sizes)
    jobs = {node.job for node in nodes if node.job}
    if len(jobs) == 1:
        context.options.setdefault(SLURM_JOB, *jobs)
    return context


def _kills(reading: LogReading) -> list[HostMessage]:
    return [each.message for each in reading.found if isinstance(each.message, HostMessage)]


def _explain_victim(victim: Victim, whole: LogContext, *, is_alone: bool) -> Explanation:
    context = victim.found.context.filled_by(whole)
    if not is_alone:
        context.forget_pool()  # nobody says whose it is
    message = victim.found.message
    if message.device is None and isinstance(message, XlaMessage):
        message = replace(message, device=victim.device)
    explanation = explain_message(message, context)
    if message.kind != "bare" or not victim.found.said:
        return explanation
    quote = f'Line {victim.found.line:,} says: "{victim.found.said}".'
    return replace(explanation, notes=(quote, *explanation.notes))


def _failure(victim: Victim, explanation: Explanation) -> Failure:
    return Failure(
        victim.found.writer.name,
        explanation.device,
        "" if explanation.device is None else explanation.device_name,
        explanation.diagnosis or "",
        explanation.amounts,
        victim.line,
    )


def explain_message(message: Message, context: LogContext | None = None) -> Explanation:
    """The explanation of one message, an OomMessage or a Refusal."""
    context = context or LogContext()
    if not isinstance(message, OomMessage):
        return explain_refusal(message, context)
    if isinstance(message, HostMessage):
        return explain_host(message, context)
    if isinstance(message, NodeMessage):
        return explain_node(message, context)
    if isinstance(message, RuntimeMessage):
        return explain_runtime(message)
    if isinstance(message, XlaMessage):
        return _explain_xla(message, context)
    if message.kind == "bare" and context.xla:
        return _explain_xla(_beside_pool(message, context), context)
    balance = Balance(message, _summed_pending(context))
    situation = Situation(message, balance, context)
    diagnosis = decide(balance)
    counsel = advise(diagnosis, situation)
    return Explanation(
        diagnosis=diagnosis,
        why=write_why(diagnosis, situation),
        device=message.device,
        device_name=situation.place.partition(" (")[0],
        amounts=_amounts(message),
        shares=card_shares(balance),
        help=(*server_help(diagnosis, situation), *counsel.help),
        no_help=(*counsel.no_help, *server_no_help(diagnosis, situation)),
        unknown=counsel.unknown,
        notes=_message_notes(situation),
    )


def _explain_xla(message: XlaMessage, context: LogContext) -> Explanation:
    explain = explain_xla_library if message.kind == "xla_library" else explain_xla
    return explain(message, context)


def _beside_pool(message: OomMessage, context: LogContext) -> XlaMessage:
    """A library's refusal under JAX, whose own pool says RESOURCE_EXHAUSTED."""
    kind = "xla_library" if context.xla == "jax" else "xla"
    name = "a library of CUDA" if kind == "xla_library" else ""
    return XlaMessage(kind, message.backend, requested=message.requested, detail=name)


def _amounts(message: OomMessage) -> dict[str, int]:
    sizes = {name: getattr(message, name) for name in AMOUNTS}
    return {name: size.bytes for name, size in sizes.items() if size is not None}


def _summed_pending(context: LogContext) -> int:
    active = context.accounts.get("summary_active")
    allocated = context.accounts.get("summary_allocated")
    if active is None or allocated is None:
        return 0
    return max(active.bytes - allocated.bytes, 0)


def _message_notes(situation: Situation) -> tuple[str, ...]:
    notes = []
    message, balance = situation.message, situation.balance
    if message.has_unreadable_process:
        notes.append("The driver gives no number for this process: the one in the text is none.")
    if balance.is_own_process_renamed:
        notes.append(
            "The process listed by another pid is this program itself: it runs in a container."
        )
    if balance.private_free:
        notes.append(
            f"The {torch_size(balance.private_free)} that torch calls allocated in private pools "
            "is free there."
        )
    outside = balance.outside
    if outside is not None and outside < -(64 << 20) and message.free is not None:
        notes.append("The numbers add up to more than the card.")
    return tuple(notes)


def _notes(reading: LogReading, victims: list[Victim]) -> tuple[str, ...]:
    notes = []
    chosen = victims[0]
    if len(victims) > 1:
        notes.append(_who_else(reading, victims))
    else:
        notes += _other_failures(reading, chosen)
    if reading.retries and reading.last_retry is not chosen.found:
        notes.append(
            f"{reading.retries:,} allocations failed once and were tried again: the card was full."
        )
    growth = _growth(reading)
    if growth:
        notes.append(growth)
    return tuple(notes)


def _other_failures(reading: LogReading, chosen: Victim) -> Iterator[str]:
    """That the log tells of more failures than the one explained."""
    starts, line = failure_starts(reading), chosen.found.line
    count = len(starts) if reading.is_whole else reading.count
    if count < 2:
        return
    devices = _devices(reading)
    where = f", on devices {', '.join(map(str, devices))}" if len(devices) > 1 else ""
    has_earlier = not reading.is_whole or sum(start <= line for start in starts) > 1
    earlier = " Earlier ones may have been caught." if has_earlier else ""
    yield (
        f"The log has {count:,} different messages about memory{where}; this is the one on line "
        f"{line:,}.{earlier}"
    )


def _who_else(reading: LogReading, victims: list[Victim]) -> str:
    first = victims[0]
    noun = "processes" if all(each.found.writer.name for each in victims) else "devices"
    count = f"{len(victims):,}" if reading.is_whole else f"At least {len(victims):,}"
    name = f"{first.name}, " if first.name else ""
    return (
        f"{count} {noun} ran out of memory; this is {name}{_why_first(reading, victims)} (line "
        f"{first.line:,}); the others are below. Some may have been caught."
    )


def _why_first(reading: LogReading, victims: list[Victim]) -> str:
    first, *others = victims
    if saw_first(reading, first):
        return "the first that torchrun saw fail"
    if has_comparable_times(victims):
        is_first = all(first.t_ns <= other.t_ns for other in others)
        return "the first by the log's times" + ("" if is_first else " that gives numbers")
    if any(other.line < first.line for other in others):
        return "the first in the log that gives numbers"
    return "the first in the log" if reading.is_whole else "the first of those"


def _devices(reading: LogReading) -> list[int]:
    devices = {found.message.device for found in reading.found}
    return sorted(device for device in devices if device is not None)


def _growth(reading: LogReading) -> str:
    """Whether allocated rose from message to message of the process and device that failed last."""
    last = reading.found[-1] if reading.found else None
    if last is None:
        return ""
    held = [
        found.message.allocated.bytes
        for found in reading.found
        if isinstance(found.message, OomMessage)
        and (found.writer, found.message.device) == (last.writer, last.message.device)
        and found.message.allocated is not None
    ]
    if len(held) < 3 or any(right <= left for left, right in pairwise(held)):
        return ""
    return (
        f"Allocated rose from message to message, from {torch_size(held[0])} to "
        f"{torch_size(held[-1])}: something is kept after a failure."
    )


def _nothing(reading: LogReading) -> Explanation:
    notes = [_quote(reading)]
    if _KILLED.search(plain(reading.last_error)):
        notes.append(KILLED_ADVICE)
    return Explanation(
        diagnosis=None, why="No out-of-memory error is in this text.", notes=tuple(notes)
    )


def _quote(reading: LogReading) -> str:
    if reading.last_error:
        return f"Its last error: {plain(reading.last_error)}"
    return f"No error either; its last line: {plain(reading.last_line)}"
