"""A sentence of a summary: what it is about, how urgent it is, and its words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How urgent a sentence is."""

    ALARM = "alarm"  # memory ran out, or the recording stopped
    WARNING = "warning"  # something to change
    NOTE = "note"  # good to know


class SentenceKind(StrEnum):
    """What a sentence is about. Views choose by this, never by the words."""

    RECORDING_STOPPED = "recording_stopped"
    KILLED = "killed"
    OUT_OF_MEMORY = "out_of_memory"
    LEAK = "leak"
    LEAK_OUTSIDE_TORCH = "leak_outside_torch"
    HOST_GROWTH = "host_growth"
    FRAGMENTATION = "fragmentation"
    FLUSHES = "flushes"
    RELEASED_AT_END = "released_at_end"
    NO_STEP = "no_step"
    USELESS_KEEP = "useless_keep"
    MODEL_FITS = "model_fits"
    DROPPED_EVENTS = "dropped_events"
    REFUSED_EVENTS = "refused_events"
    OLD_EVENTS = "old_events"
    UNKNOWN_EVENTS = "unknown_events"
    IGNORED_EVENTS = "ignored_events"


_ALARMS = (SentenceKind.RECORDING_STOPPED, SentenceKind.KILLED, SentenceKind.OUT_OF_MEMORY)
_NOTES = (
    SentenceKind.RELEASED_AT_END,
    SentenceKind.NO_STEP,
    SentenceKind.OLD_EVENTS,
    SentenceKind.UNKNOWN_EVENTS,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """``text``: one or two sentences for people."""

    kind: SentenceKind
    text: str

    @property
    def severity(self) -> Severity:
        """How urgent it is; the kind decides."""
        if self.kind in _ALARMS:
            return Severity.ALARM
        return Severity.NOTE if self.kind in _NOTES else Severity.WARNING

    def __str__(self) -> str:
        return self.text

    def as_json(self) -> dict[str, str]:
        """As ``summary --json`` has it."""
        return {"kind": self.kind, "severity": self.severity, "text": self.text}
