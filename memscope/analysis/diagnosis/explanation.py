"""Why memory ran out, in the form that every view shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from memscope.interop.oom_log.formats.message import SIZE_NAMES


class Diagnosis(StrEnum):
    """Why memory ran out. The values stand in JSON."""

    FRAGMENTATION = "fragmentation"
    SHORTAGE = "shortage"
    OUTSIDE = "outside"
    MEMORY_FRACTION = "memory_fraction"
    PENDING_FREES = "pending_frees"
    PRIVATE_POOLS = "private_pools"
    REQUEST_TOO_LARGE = "request_too_large"
    NOT_DEVICE_MEMORY = "not_device_memory"
    OVERSUBSCRIBED = "oversubscribed"
    GROWTH = "growth"
    SERVER_BUDGET = "server_budget"
    TORCH_CACHE = "torch_cache"
    NVML_UNAVAILABLE = "nvml_unavailable"
    UNKNOWN = "unknown"

    @property
    def words(self) -> str:
        """The diagnosis as words in a sentence ("memory fraction")."""
        return self.value.replace("_", " ")


class Source(StrEnum):
    """What an explanation was made from. The values stand in JSON."""

    LOG = "log"
    SNAPSHOT = "snapshot"
    RECORDING = "recording"


class AdviceKind(StrEnum):
    """Advice that other evidence may replace or contradict."""

    STOP_OTHERS = "stop_others"
    EMPTY_CACHE = "empty_cache"
    CONTAINER_LIMIT = "container_limit"
    ADDRESS_SPACE = "address_space"


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to do or not to do. ``frees_bytes``: None if it cannot be computed."""

    setting: str
    reason: str
    frees_bytes: int | None = None
    kind: AdviceKind | None = None

    def to_json(self) -> dict[str, Any]:
        """The advice as `explain --json` prints it."""
        return {
            "setting": self.setting,
            "frees_bytes": self.frees_bytes,
            "reason": self.reason,
        }


class ShareKind(StrEnum):
    """Parts of the card's bar."""

    ALLOCATED = "allocated"
    PRIVATE = "private"
    CACHED = "cached"
    PENDING = "pending"
    RELEASABLE = "releasable"
    OUTSIDE = "outside"
    OTHERS = "others"
    FREE = "free"
    UNCERTAIN = "uncertain"


_GLYPHS = {
    ShareKind.ALLOCATED: "#",
    ShareKind.PRIVATE: "-",
    ShareKind.CACHED: "=",
    ShareKind.PENDING: "~",
    ShareKind.RELEASABLE: ":",
    ShareKind.OUTSIDE: "x",
    ShareKind.OTHERS: "o",
    ShareKind.FREE: ".",
    ShareKind.UNCERTAIN: "?",
}


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the card."""

    name: str
    bytes: int
    kind: ShareKind

    @property
    def glyph(self) -> str:
        """The character that stands for this part in the bar."""
        return _GLYPHS[self.kind]


@dataclass(frozen=True, slots=True)
class Failure:
    """One of several processes or devices that ran out of memory, in short.

    ``process``: its rank, its pod or both; "" if the log does not say. ``line``: in the log.
    """

    process: str
    device: int | None
    device_name: str
    diagnosis: Diagnosis
    sizes_bytes: dict[str, int]
    line: int

    def to_json(self) -> dict[str, Any]:
        """The failure as `explain --json` prints it."""
        return {
            "process": self.process or None,
            "diagnosis": self.diagnosis,
            "device": self.device,
            **_sizes_json(self.sizes_bytes),
            "line": self.line,
        }


def _sizes_json(sizes_bytes: dict[str, int]) -> dict[str, int | None]:
    return {f"{name}_bytes": sizes_bytes.get(name) for name in SIZE_NAMES}


@dataclass(frozen=True, slots=True)
class Explanation:
    """One diagnosis, the evidence for it, and advice. ``diagnosis`` is None if nothing failed.

    ``why``: a paragraph. ``sizes_bytes``: the known ones, by name. ``shares``: parts of the card
    that add up to ``bar_bytes``; empty if too little is known. ``failures``: all processes that
    ran out together in a log, the explained one first. ``is_partial``: the input is incomplete.
    """

    diagnosis: Diagnosis | None
    why: str
    source: Source = Source.LOG
    device: int | None = None
    device_name: str = ""
    sizes_bytes: dict[str, int] = field(default_factory=dict)
    shares: tuple[Share, ...] = ()
    help: tuple[Advice, ...] = ()
    no_help: tuple[Advice, ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    is_partial: bool = False

    @property
    def bar_bytes(self) -> int:
        """The sum of all parts of the card."""
        return sum(share.bytes for share in self.shares)

    def lines(self) -> tuple[str, ...]:
        """Further text, shown below everything else."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """The explanation as `explain --json` prints it."""
        return {
            "source": self.source,
            "diagnosis": self.diagnosis,
            "why": self.why,
            "process": (self.failures[0].process or None) if self.failures else None,
            "device": self.device,
            **_sizes_json(self.sizes_bytes),
            "bar": [{"name": share.name, "bytes": share.bytes} for share in self.shares],
            "help": [advice.to_json() for advice in self.help],
            "no_help": [advice.to_json() for advice in self.no_help],
            "unknown": list(self.unknown),
            "notes": list(self.notes),
            "others": [failure.to_json() for failure in self.failures[1:]],
        }
