"""Why a snapshot looks as it does: read and analysed in a guarded child process."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Any

from memscope.analysis.diagnosis.explanation import Advice, Explanation, Share
from memscope.interop.snapshot.guarded import examine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memscope.analysis.diagnosis.snapshot.analysis import SnapshotAnalysis
    from memscope.analysis.memory_map.fragmentation import Bucket

_TARGET = "memscope.analysis.diagnosis.snapshot.explain:explain_stream"


@dataclass(frozen=True, slots=True)
class SnapshotExplanation(Explanation):
    """An explanation with the snapshot's numbers (``details``), and its ``report`` as text."""

    details: dict[str, Any] = field(default_factory=dict)
    report: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As ``explain --json`` prints it."""
        return {**Explanation.to_json(self), **self.details}

    def lines(self) -> tuple[str, ...]:
        """The block map, who holds what, growth and peak, as text."""
        return self.report


def explain_snapshot(
    path: str | os.PathLike[str], *, device: int | None = None
) -> SnapshotExplanation:
    """Why the snapshot at ``path`` looks as it does.

    By default of the device that ran out of memory, else of the fullest. Raises MemscopeError.
    """
    return read_explanation(examine(_TARGET, path, device=device))


def read_explanation(found: dict[str, Any]) -> SnapshotExplanation:
    """The explanation that ``describe`` made into JSON."""
    explained = found["explanation"]
    return SnapshotExplanation(
        **{
            **explained,
            "shares": tuple(Share(**each) for each in explained["shares"]),
            "help": tuple(Advice(**each) for each in explained["help"]),
            "no_help": tuple(Advice(**each) for each in explained["no_help"]),
            "unknown": tuple(explained["unknown"]),
            "notes": tuple(explained["notes"]),
        },
        details=found["details"],
        report=tuple(found["report"]),
    )


def explain_stream(stream: IO[bytes], size: int, device: int | None = None) -> dict[str, Any]:
    """The child's part: everything about the snapshot in ``stream``, as JSON."""
    from memscope.analysis.diagnosis.snapshot.analysis import analyse_snapshot
    from memscope.interop.snapshot.snapshot import read_snapshot

    return describe(analyse_snapshot(read_snapshot(stream, size), device))


def describe(found: SnapshotAnalysis) -> dict[str, Any]:
    """Everything about an analysed snapshot, as JSON."""
    from memscope.analysis.diagnosis.snapshot.details import snapshot_details
    from memscope.analysis.diagnosis.snapshot.report import snapshot_report

    return {
        "explanation": asdict(explain_analysis(found)),
        "details": snapshot_details(found),
        "report": snapshot_report(found),
    }


def explain_analysis(found: SnapshotAnalysis) -> Explanation:
    """The explanation of an analysed snapshot."""
    from memscope.analysis.diagnosis.snapshot import advice as snapshot_advice
    from memscope.analysis.diagnosis.snapshot import words as snapshot_words

    oom = found.oom
    free = oom.device_free_bytes if oom else None
    amounts = {
        "requested": oom.requested_bytes if oom else None,
        "free": free,
        "allocated": found.allocated_bytes,
        "reserved": found.reserved_bytes,
    }
    return Explanation(
        diagnosis=found.diagnosis,
        why=snapshot_words.why(found),
        source="snapshot",
        device=found.device,
        amounts={name: value for name, value in amounts.items() if value is not None},
        device_name=f"device {found.device}, as far as the file says",
        shares=_shares(found),
        help=snapshot_advice.help_with(found),
        no_help=snapshot_advice.no_help_with(found),
        unknown=snapshot_words.unknown(found),
        notes=snapshot_words.notes(found),
    )


def _shares(found: SnapshotAnalysis) -> tuple[Share, ...]:
    """What PyTorch held, in parts that add up, and what the driver had left when it failed.

    Without the latter where a limit kept the driver's from being used.
    """
    oom = found.oom
    held = found.buckets if oom is None else oom.buckets
    parts = (
        Share("torch, allocated", sum(b.allocated_bytes for b in held), "#"),
        *unused_shares(held),
        Share("the driver's when the request failed", oom.room_bytes if oom else 0, "."),
    )
    return tuple(part for part in parts if part.bytes)


def unused_shares(held: Sequence[Bucket]) -> tuple[Share, ...]:
    """What PyTorch holds in ``held`` and does not use, by what keeps it from being used."""
    own = [bucket for bucket in held if not bucket.is_private]
    private = [bucket for bucket in held if bucket.is_private]
    parts = (
        Share("torch, freed, another stream may use it", sum(b.pending_bytes for b in held), "~"),
        Share("torch, free in private pools", sum(b.free_bytes for b in private), "-"),
        Share("torch, free, pinned by live blocks", sum(b.pinned_bytes for b in own), "="),
        Share("torch, free, can be given back", sum(b.releasable_bytes for b in own), ":"),
    )
    return tuple(part for part in parts if part.bytes)
