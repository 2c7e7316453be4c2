"""Why memory ran out, from the text of a log: one diagnosis, its proof, and what would help."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

from memscope.analysis.explanation import FIGURES, Explanation
from memscope.analysis.oom_advice import advise
from memscope.analysis.oom_balance import Balance, decide
from memscope.analysis.oom_card import card_shares
from memscope.analysis.oom_server_advice import server_help, server_no_help
from memscope.analysis.oom_situation import Situation, torch_size
from memscope.analysis.oom_words import write_why
from memscope.analysis.refusal import explain_refusal
from memscope.interop.log_context import LogContext
from memscope.interop.log_lines import plain
from memscope.interop.oom_formats import OomMessage
from memscope.interop.oom_message import Found, LogReading, Message
from memscope.interop.server_refusals import Refusal

# Messages no further apart belong to one failure, told by several layers or ranks of a program.
INCIDENT_LINES = 2000

_KILLED = re.compile(r"\bKilled\b")
KILLED_ADVICE = (
    "Something ended it from outside. Where that was the kernel, host memory ran out, not the "
    "GPU's: `dmesg` names the process, `kubectl describe pod` says OOMKilled (exit code 137)."
)


def explain_reading(reading: LogReading) -> Explanation:
    """The explanation of the last failure that ``reading`` found, of the message that says most."""
    found = choose_message(reading)
    if found is None:
        return _nothing(reading)
    context = found.context.filled_by(reading.context)
    context.servers.update(
        each.message.server for each in reading.found if isinstance(each.message, Refusal)
    )
    return explain_message(found.message, context, notes=_notes(reading, found))


def explain_message(
    message: Message, context: LogContext | None = None, *, notes: tuple[str, ...] = ()
) -> Explanation:
    """The explanation of one message, an OomMessage or a Refusal."""
    context = context or LogContext()
    if not isinstance(message, OomMessage):
        return _with_notes(explain_refusal(message, context), notes)
    balance = Balance(message, _summed_pending(context))
    situation = Situation(message, balance, context)
    diagnosis = decide(balance)
    counsel = advise(diagnosis, situation)
    return Explanation(
        diagnosis=diagnosis,
        why=write_why(diagnosis, situation),
        device=message.device,
        device_name=situation.place.partition(" (")[0],
        figures=_figures(message),
        shares=card_shares(balance),
        help=(*server_help(diagnosis, situation), *counsel.help),
        no_help=(*counsel.no_help, *server_no_help(diagnosis, situation)),
        unknown=counsel.unknown,
        notes=(*_message_notes(situation), *notes),
    )


def choose_message(reading: LogReading) -> Found | None:
    """Of the messages of the last failure the one that says most; the last of equals."""
    if not reading.found:
        return reading.last_retry
    incident = [reading.found[-1]]
    for earlier in reversed(reading.found[:-1]):
        if incident[-1].line - earlier.line > INCIDENT_LINES:
            break
        incident.append(earlier)
    return max(incident, key=lambda found: (_weight(found), found.line))


def _weight(found: Found) -> int:
    message = found.message
    if not isinstance(message, OomMessage):
        return 1 if message.kind == "warmup" else 2
    if message.kind == "bare":
        return 0
    if message.kind in ("torch", "async", "mps"):
        return 2 if message.figures >= 3 or message.is_beyond_exabyte else 1
    return 2 if message.kind == "nvml" else 1


def _figures(message: OomMessage) -> dict[str, int]:
    sizes = {name: getattr(message, name) for name in FIGURES}
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
        notes.append("The driver gives no figure for this process: the one in the text is none.")
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
        notes.append("The figures add up to more than the card.")
    return tuple(notes)


def _notes(reading: LogReading, chosen: Found) -> tuple[str, ...]:
    notes = []
    if reading.count > 1:
        devices = _devices(reading)
        where = f", on devices {', '.join(map(str, devices))}" if len(devices) > 1 else ""
        notes.append(
            f"The log has {reading.count:,} different messages about memory{where}; this is the "
            f"one on line {chosen.line:,}. Earlier ones may have been caught."
        )
    if reading.retries and reading.last_retry is not chosen:
        notes.append(
            f"{reading.retries:,} allocations failed once and were tried again: the card was full."
        )
    growth = _growth(reading)
    if growth:
        notes.append(growth)
    return tuple(notes)


def _devices(reading: LogReading) -> list[int]:
    devices = {found.message.device for found in reading.found}
    return sorted(device for device in devices if device is not None)


def _growth(reading: LogReading) -> str:
    """Whether allocated rose from message to message on the device that failed last."""
    last = reading.found[-1].message if reading.found else None
    if not isinstance(last, OomMessage):
        return ""
    held = [
        found.message.allocated.bytes
        for found in reading.found
        if isinstance(found.message, OomMessage)
        and found.message.device == last.device
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


def _with_notes(explanation: Explanation, notes: tuple[str, ...]) -> Explanation:
    return replace(explanation, notes=(*explanation.notes, *notes))
