"""The explanation of one recorded out-of-memory error, with its map where it has one."""

from __future__ import annotations

import dataclasses
import io
import re
from typing import TYPE_CHECKING, Any

from memscope.analysis.diagnosis.advice import UNNAMED, advise
from memscope.analysis.diagnosis.balance import Balance
from memscope.analysis.diagnosis.card import card_shares
from memscope.analysis.diagnosis.explanation import AMOUNTS, Advice, Explanation, Share
from memscope.analysis.diagnosis.log.explain import explain_message, explain_reading
from memscope.analysis.diagnosis.log.incident import victims_of
from memscope.analysis.diagnosis.recording.host import within_host_limits
from memscope.analysis.diagnosis.recording.oom import RecordedOom, growth_sentence
from memscope.analysis.diagnosis.recording.silent import SILENT_KINDS, read_silent
from memscope.analysis.diagnosis.recording.silent_words import explain_silent
from memscope.analysis.diagnosis.situation import torch_size
from memscope.analysis.diagnosis.snapshot import advice as snapshot_advice
from memscope.analysis.diagnosis.snapshot import words as snapshot_words
from memscope.analysis.diagnosis.snapshot.details import snapshot_details
from memscope.analysis.diagnosis.snapshot.explain import SnapshotExplanation, unused_shares
from memscope.analysis.diagnosis.snapshot.report import snapshot_report
from memscope.analysis.diagnosis.words import write_why
from memscope.analysis.timeline.oom_readings import name_processes
from memscope.interop.oom_log.formats.torch import OomMessage
from memscope.interop.oom_log.reader import read_log

if TYPE_CHECKING:
    from memscope.analysis.timeline.rare_rows import OutOfMemory
    from memscope.analysis.timeline.timeline import Timeline

SOURCE = "recording"
_HOST_ERROR = re.compile(r"\w{0,80}(?<!OutOf)MemoryError(?!\w)")


def explain_oom(recorded: RecordedOom, *, no_owners: str = "", no_map: str = "") -> Explanation:
    """The explanation of ``recorded``. ``no_owners``, ``no_map``: why they are not recorded."""
    situation = recorded.situation
    message = situation.message
    fields: dict[str, Any] = {
        "diagnosis": recorded.diagnosis,
        "why": _why(recorded),
        "source": SOURCE,
        "device": max(recorded.oom.device, 0),
        "device_name": situation.device_name,
        "amounts": {
            key: size.bytes for key in AMOUNTS if (size := getattr(message, key)) is not None
        },
        "shares": _shares(recorded),
        "help": _help(recorded),
        "no_help": _no_help(recorded),
        "unknown": _unknown(recorded, no_owners, no_map),
        "notes": _notes(recorded),
    }
    if recorded.found is None:
        return Explanation(**fields)
    details, report = snapshot_details(recorded.found), snapshot_report(recorded.found)
    return SnapshotExplanation(**fields, details=details, report=tuple(report))


def explain_error(oom: OutOfMemory, timeline: Timeline) -> Explanation:
    """The explanation of an error that is known by its exception alone."""
    reading = read_log(io.BytesIO(oom.error.encode(errors="replace")))
    if reading.found:
        found, message = explain_reading(reading), victims_of(reading)[0].found.message
    else:  # Python's own MemoryError says nothing of itself; another was read by other rules
        message = OomMessage("host" if _HOST_ERROR.match(oom.error) else "bare")
        found = explain_message(message)
    if isinstance(message, OomMessage) and message.kind in SILENT_KINDS:
        found = explain_silent(found, read_silent(message, oom, timeline))
    if message.kind == "host":
        found = within_host_limits(found, timeline)
    note = "It is known by its exception alone: torch's observer was not called for it."
    return dataclasses.replace(found, source=SOURCE, notes=(*found.notes, note))


def within_limit(balance: Balance) -> Balance:
    """The same with the limit as its card, where that is what ran out."""
    message = balance.message
    if not balance.is_capped or message.limit is None:
        return balance
    return Balance(dataclasses.replace(message, total=message.limit, free=balance.room, limit=None))


def _shares(recorded: RecordedOom) -> tuple[Share, ...]:
    """The card; what torch held unused is told apart where the map adds up to the counters."""
    shares = card_shares(within_limit(recorded.balance))
    unused = () if recorded.found is None else unused_shares(recorded.found.buckets)
    if sum(share.bytes for share in unused) != recorded.balance.cached:
        return shares
    split = [unused if share.name == "torch, cached" else (share,) for share in shares]
    return tuple(share for part in split for share in part)


def _why(recorded: RecordedOom) -> str:
    diagnosis, situation, found = recorded.diagnosis, recorded.situation, recorded.found
    if diagnosis == "growth" and recorded.growth is not None:
        kept = growth_sentence(recorded.growth)
        why = f"{_asked(recorded)} What the steps kept would have been enough for it: {kept}."
    elif recorded.is_of_map and found is not None:
        return f"{_asked(recorded)} {snapshot_words.evidence(found, diagnosis)}"
    else:
        why = write_why(diagnosis, situation)
    holder = snapshot_words.largest_holder(found) if found is not None else ""
    return f"{why} {holder}".strip()


def _asked(recorded: RecordedOom) -> str:
    """What was asked and what was there, by the counters of that moment."""
    situation, balance = recorded.situation, recorded.balance
    name = recorded.diagnosis.replace("_", " ").capitalize()
    room = "an unknown amount" if balance.room is None else torch_size(balance.room.bytes)
    where = "left of the limit" if balance.is_capped else "free"
    reserved = balance.message.reserved
    held = "" if reserved is None else f"; torch held {torch_size(reserved.bytes)}"
    free = recorded.found.oom.free_bytes if recorded.found and recorded.found.oom else None
    inside = "" if free is None or not held else f", {torch_size(free)} of it free in its segments"
    return (
        f"{name}: {situation.place} was asked for {torch_size(situation.wanted)} and had {room} "
        f"{where}{held}{inside}."
    )


def _help(recorded: RecordedOom) -> tuple[Advice, ...]:
    found = recorded.found
    if recorded.diagnosis == "growth" and recorded.growth is not None:
        kept = round(recorded.growth.rise_bytes)
        what = "let go of what each step keeps"
        why = "a list, a cache, a loss kept with its graph (.detach())"
        return (Advice(what, why, kept),)
    if recorded.is_of_map and found is not None:
        return snapshot_advice.help_with(found)
    more = snapshot_advice.help_with(found) if found and found.diagnosis == "shortage" else ()
    return (*advise(recorded.diagnosis, recorded.situation).help, *more)


def _no_help(recorded: RecordedOom) -> tuple[Advice, ...]:
    found = recorded.found
    if found is not None and (recorded.is_of_map or recorded.diagnosis == "growth"):
        return snapshot_advice.no_help_with(found)
    if recorded.diagnosis == "growth":
        return (Advice("a larger card, a smaller batch", "what grows fills that as well"),)
    return advise(recorded.diagnosis, recorded.situation).no_help


def _unknown(recorded: RecordedOom, no_owners: str, no_map: str) -> tuple[str, ...]:
    lines = []
    if recorded.map is None and recorded.oom.source == "observer":
        reason = no_map or "the first error alone has the allocator's map"
        lines.append(f"where its memory lay: {reason}")
    if recorded.map is not None and not recorded.map.has_owners:
        lines.append(f"who allocated what: {no_owners or 'no call stacks were recorded'}")
    if recorded.found is None and recorded.diagnosis != "growth":
        left_open = advise(recorded.diagnosis, recorded.situation).unknown
        lines += [each for each in left_open if not recorded.others or each not in UNNAMED]
    return tuple(lines)


def _notes(recorded: RecordedOom) -> tuple[str, ...]:
    oom, found, growth = recorded.oom, recorded.found, recorded.growth
    notes = [f"It failed in step {oom.step:,}." if oom.step >= 0 else "It failed outside of steps."]
    if recorded.asked_by is not None:
        notes.append(f"It was asked for in {recorded.asked_by}.")
    if recorded.diagnosis == "outside" and recorded.others:
        notes.append(f"Other processes on the card: {name_processes(recorded.others)}.")
    if found is not None:
        notes += snapshot_words.notes(found)
    if growth is not None and recorded.diagnosis != "growth":
        sentence = growth_sentence(growth)
        notes.append(f"{sentence[0].upper()}{sentence[1:]}.")
    left_out = recorded.map.left_out_segments if recorded.map else 0
    if left_out and recorded.map is not None:
        size = torch_size(recorded.map.left_out_bytes)
        notes.append(f"The map lacks {left_out:,} segments with {size}.")
    return tuple(notes)
