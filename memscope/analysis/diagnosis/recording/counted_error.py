"""Explain one recorded error: by its counters and its map, or by its exception alone."""

from __future__ import annotations

import dataclasses
import io
import re
from typing import TYPE_CHECKING, Any

from memscope.analysis.diagnosis.balance import Balance
from memscope.analysis.diagnosis.card import card_shares
from memscope.analysis.diagnosis.explanation import (
    Advice,
    Diagnosis,
    Explanation,
    Share,
    ShareKind,
    Source,
)
from memscope.analysis.diagnosis.log.explain import explain_log, explain_message
from memscope.analysis.diagnosis.log.incident import failed_processes
from memscope.analysis.diagnosis.recording.bare_error import BARE_KINDS, read_bare_error
from memscope.analysis.diagnosis.recording.bare_error_words import explain_bare_error
from memscope.analysis.diagnosis.recording.evidence import RecordedOom, growth_sentence
from memscope.analysis.diagnosis.recording.host_memory import within_host_limits
from memscope.analysis.diagnosis.snapshot import advice as snapshot_advice
from memscope.analysis.diagnosis.snapshot import words as snapshot_words
from memscope.analysis.diagnosis.snapshot.explain import SnapshotExplanation, unused_shares
from memscope.analysis.diagnosis.snapshot.json_details import snapshot_details
from memscope.analysis.diagnosis.snapshot.text_report import snapshot_report
from memscope.analysis.diagnosis.torch_advice import advise
from memscope.analysis.diagnosis.words import write_why
from memscope.analysis.timeline.oom_readings import name_processes
from memscope.analysis.timeline.rare_rows import OBSERVER
from memscope.interop.oom_log.formats.torch_message import TorchKind, TorchMessage
from memscope.interop.oom_log.reader import read_log
from memscope.units import torch_size

if TYPE_CHECKING:
    from memscope.analysis.timeline.rare_rows import OutOfMemory
    from memscope.analysis.timeline.timeline import Timeline

_HOST_ERROR = re.compile(r"\w{0,80}(?<!OutOf)MemoryError(?!\w)")


def explain_oom(recorded: RecordedOom, *, no_owners: str = "", no_map: str = "") -> Explanation:
    """Explain ``recorded``. ``no_owners``, ``no_map``: why owners and map are not recorded."""
    request = recorded.request
    fields: dict[str, Any] = {
        "diagnosis": recorded.diagnosis,
        "why": _why(recorded),
        "source": Source.RECORDING,
        "device": max(recorded.oom.device, 0),
        "device_name": request.device_name,
        "sizes_bytes": request.message.sizes_bytes,
        "shares": _shares(recorded),
        "help": _help(recorded),
        "no_help": _no_help(recorded),
        "unknown": _unknown(recorded, no_owners, no_map),
        "notes": _notes(recorded),
    }
    if recorded.analysis is None:
        return Explanation(**fields)
    details, report = snapshot_details(recorded.analysis), snapshot_report(recorded.analysis)
    return SnapshotExplanation(**fields, details=details, report=tuple(report))


def explain_error(oom: OutOfMemory, timeline: Timeline) -> Explanation:
    """Explain an error that is known by its exception alone."""
    findings = read_log(io.BytesIO(oom.error.encode(errors="replace")))
    if findings.findings:
        explanation = explain_log(findings)
        message = failed_processes(findings)[0].finding.message
    else:  # Python's own MemoryError has no text
        is_host = _HOST_ERROR.match(oom.error)
        message = TorchMessage(TorchKind.HOST if is_host else TorchKind.BARE)
        explanation = explain_message(message)
    if isinstance(message, TorchMessage) and message.kind in BARE_KINDS:
        explanation = explain_bare_error(explanation, read_bare_error(message, oom, timeline))
    if message.kind is TorchKind.HOST:
        explanation = within_host_limits(explanation, timeline)
    note = "It is known by its exception alone: torch's observer was not called for it."
    notes = (*explanation.notes, note)
    return dataclasses.replace(explanation, source=Source.RECORDING, notes=notes)


def within_limit(balance: Balance) -> Balance:
    """``balance`` with the limit in place of the card, if the limit is what ran out."""
    message = balance.message
    if not balance.is_capped or message.limit is None:
        return balance
    return Balance(dataclasses.replace(message, total=message.limit, free=balance.room, limit=None))


def _shares(recorded: RecordedOom) -> tuple[Share, ...]:
    """The card. Torch's unused memory is split further if the map adds up to the counters."""
    shares = card_shares(within_limit(recorded.balance))
    unused = () if recorded.analysis is None else unused_shares(recorded.analysis.buckets)
    is_torch = recorded.request.message.kind is TorchKind.CACHING
    if sum(share.bytes for share in unused) != recorded.balance.cached_bytes or not is_torch:
        return shares
    split = [unused if share.kind is ShareKind.CACHED else (share,) for share in shares]
    return tuple(share for part in split for share in part)


def _why(recorded: RecordedOom) -> str:
    diagnosis, request, analysis = recorded.diagnosis, recorded.request, recorded.analysis
    if diagnosis is Diagnosis.GROWTH and recorded.growth is not None:
        kept = growth_sentence(recorded.growth)
        why = f"{_asked(recorded)} Without what the steps kept it would have fitted: {kept}."
    elif recorded.is_of_map and analysis is not None:
        return f"{_asked(recorded)} {snapshot_words.evidence(analysis, diagnosis)}"
    else:
        why = write_why(diagnosis, request)
    holder = snapshot_words.largest_holder(analysis) if analysis is not None else ""
    return f"{why} {holder}".strip()


def _asked(recorded: RecordedOom) -> str:
    """What was requested and what was there, by the counters of that moment."""
    request, balance = recorded.request, recorded.balance
    name = recorded.diagnosis.words.capitalize()
    room = "an unknown amount" if balance.room is None else torch_size(balance.room.bytes)
    where = "left of the limit" if balance.is_capped else "free"
    reserved = balance.message.reserved
    held = "" if reserved is None else f"; torch held {torch_size(reserved.bytes)}"
    free = recorded.analysis.oom.free_bytes if recorded.analysis and recorded.analysis.oom else None
    inside = "" if free is None or not held else f", {torch_size(free)} of it free in its segments"
    return (
        f"{name}: {torch_size(request.wanted_bytes)} was requested on {request.place}, and {room} "
        f"was {where}{held}{inside}."
    )


def _help(recorded: RecordedOom) -> tuple[Advice, ...]:
    analysis = recorded.analysis
    if recorded.diagnosis is Diagnosis.GROWTH and recorded.growth is not None:
        kept = round(recorded.growth.rise_bytes)
        what = "let go of what each step keeps"
        why = "a list, a cache, a loss kept with its graph (.detach())"
        return (Advice(what, why, kept),)
    if recorded.is_of_map and analysis is not None:
        return snapshot_advice.help_with(analysis)
    is_short = analysis is not None and analysis.diagnosis is Diagnosis.SHORTAGE
    more = snapshot_advice.help_with(analysis) if analysis and is_short else ()
    return (*advise(recorded.diagnosis, recorded.request).help, *more)


def _no_help(recorded: RecordedOom) -> tuple[Advice, ...]:
    analysis = recorded.analysis
    if analysis is not None and (recorded.is_of_map or recorded.diagnosis is Diagnosis.GROWTH):
        return snapshot_advice.no_help_with(analysis)
    if recorded.diagnosis is Diagnosis.GROWTH:
        return (Advice("a larger card, a smaller batch", "memory that grows will fill that too"),)
    return advise(recorded.diagnosis, recorded.request).no_help


def _unknown(recorded: RecordedOom, no_owners: str, no_map: str) -> tuple[str, ...]:
    lines = []
    if recorded.map is None and recorded.oom.source == OBSERVER:
        reason = no_map or "only the first error has the allocator's map"
        lines.append(f"what held the memory: {reason}")
    if recorded.map is not None and not recorded.map.has_owners:
        lines.append(f"who allocated what: {no_owners or 'no call stacks were recorded'}")
    if recorded.analysis is None and recorded.diagnosis is not Diagnosis.GROWTH:
        lines += advise(recorded.diagnosis, recorded.request).unknown
    return tuple(lines)


def _notes(recorded: RecordedOom) -> tuple[str, ...]:
    oom, analysis, growth = recorded.oom, recorded.analysis, recorded.growth
    notes = [f"It failed in step {oom.step:,}." if oom.step >= 0 else "It failed outside of steps."]
    if recorded.asked_by is not None:
        notes.append(f"The request came from {recorded.asked_by}.")
    if recorded.diagnosis is Diagnosis.OUTSIDE and recorded.others:
        notes.append(f"Other processes on the card: {name_processes(recorded.others)}.")
    if analysis is not None:
        notes += snapshot_words.notes(analysis)
    if growth is not None and recorded.diagnosis is not Diagnosis.GROWTH:
        sentence = growth_sentence(growth)
        notes.append(f"{sentence[0].upper()}{sentence[1:]}.")
    left_out = recorded.map.left_out_segments if recorded.map else 0
    if left_out and recorded.map is not None:
        size = torch_size(recorded.map.left_out_bytes)
        notes.append(f"{left_out:,} segments with {size} are missing from the map.")
    return tuple(notes)
