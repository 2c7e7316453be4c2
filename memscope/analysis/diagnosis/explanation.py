"""Why memory ran out, as every view shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

AMOUNTS = ("requested", "total", "free", "allocated", "reserved", "limit")


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to do, or not to do, and what it frees where that can be computed."""

    setting: str
    reason: str
    frees_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "setting": self.setting,
            "frees_bytes": self.frees_bytes,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the card. ``glyph`` stands for it in the bar."""

    name: str
    bytes: int
    glyph: str


@dataclass(frozen=True, slots=True)
class Failure:
    """One of several processes or devices that ran out, in few words.

    ``process``: its rank, pod or both, "" where the log does not say. ``line``: of the log.
    """

    process: str
    device: int | None
    device_name: str
    diagnosis: str
    amounts: dict[str, int]
    line: int

    def to_json(self) -> dict[str, Any]:
        return {
            "process": self.process or None,
            "diagnosis": self.diagnosis,
            "device": self.device,
            **_amounts_json(self.amounts),
            "line": self.line,
        }


def _amounts_json(amounts: dict[str, int]) -> dict[str, int | None]:
    return {f"{name}_bytes": amounts.get(name) for name in AMOUNTS}


@dataclass(frozen=True, slots=True)
class Explanation:
    """One diagnosis, or None where nothing failed, with what proves it and what follows.

    ``why``: a paragraph. ``numbers``: bytes by name, those that are known. ``shares``: parts of the
    card that add up to ``bar_bytes``; none where too little is known. ``failures``: all that ran
    out together in a log, this one first. ``is_partial``: what it was read from is not whole.
    """

    diagnosis: str | None
    why: str
    source: str = "log"
    device: int | None = None
    device_name: str = ""
    amounts: dict[str, int] = field(default_factory=dict)
    shares: tuple[Share, ...] = ()
    help: tuple[Advice, ...] = ()
    no_help: tuple[Advice, ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    is_partial: bool = False

    @property
    def bar_bytes(self) -> int:
        """What the parts of the card add up to."""
        return sum(share.bytes for share in self.shares)

    def lines(self) -> tuple[str, ...]:
        """More as text, below everything else."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """As ``explain --json`` prints it."""
        return {
            "source": self.source,
            "diagnosis": self.diagnosis,
            "why": self.why,
            "process": (self.failures[0].process or None) if self.failures else None,
            "device": self.device,
            **_amounts_json(self.amounts),
            "bar": [{"name": share.name, "bytes": share.bytes} for share in self.shares],
            "help": [advice.to_json() for advice in self.help],
            "no_help": [advice.to_json() for advice in self.no_help],
            "unknown": list(self.unknown),
            "notes": list(self.notes),
            "others": [failure.to_json() for failure in self.failures[1:]],
        }
