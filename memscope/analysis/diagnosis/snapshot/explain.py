"""Explain a memory snapshot. It is read and analysed in a guarded child process."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Any

from memscope.analysis.diagnosis.explanation import (
    Advice,
    Diagnosis,
    Explanation,
    Share,
    ShareKind,
    Source,
)
from memscope.interop.snapshot.guarded import examine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memscope.analysis.diagnosis.snapshot.analysis import SnapshotAnalysis
    from memscope.analysis.memory_map.fragmentation import Bucket

_TARGET = "memscope.analysis.diagnosis.snapshot.explain:explain_stream"


@dataclass(frozen=True, slots=True)
class SnapshotExplanation(Explanation):
    """An explanation with the snapshot's numbers (``details``) and its ``report`` as text."""

    details: dict[str, Any] = field(default_factory=dict)
    report: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The explanation as `explain --json` prints it."""
        return {**Explanation.to_json(self), **self.details}

    def lines(self) -> tuple[str, ...]:
        """The block map, holders, growth and peak, as text."""
        return self.report


def explain_snapshot(
    path: str | os.PathLike[str], *, device: int | None = None
) -> SnapshotExplanation:
    """Explain ``device`` of the snapshot at ``path``. Raises MemscopeError.

    The default device is the one that ran out of memory, else the fullest.
    """
    return read_explanation(examine(_TARGET, path, device=device))


def read_explanation(data: dict[str, Any]) -> SnapshotExplanation:
    """The explanation that ``describe`` turned into JSON."""
    explained = data["explanation"]
    diagnosis = explained["diagnosis"]
    return SnapshotExplanation(
        **{
            **explained,
            "diagnosis": None if diagnosis is None else Diagnosis(diagnosis),
            "source": Source(explained["source"]),
            "shares": tuple(_share(**each) for each in explained["shares"]),
            "help": tuple(Advice(**each) for each in explained["help"]),
            "no_help": tuple(Advice(**each) for each in explained["no_help"]),
            "unknown": tuple(explained["unknown"]),
            "notes": tuple(explained["notes"]),
        },
        details=data["details"],
        report=tuple(data["report"]),
    )


def _share(name: str, bytes: int, kind: str) -> Share:
    return Share(name, bytes, ShareKind(kind))


def explain_stream(stream: IO[bytes], size: int, device: int | None = None) -> dict[str, Any]:
    """Runs in the child: everything about the snapshot in ``stream``, as JSON."""
    from memscope.analysis.diagnosis.snapshot.analysis import analyse_snapshot
    from memscope.interop.snapshot.snapshot import read_snapshot

    return describe(analyse_snapshot(read_snapshot(stream, size), device))


def describe(analysis: SnapshotAnalysis) -> dict[str, Any]:
    """Everything about an analysed snapshot, as JSON."""
    from memscope.analysis.diagnosis.snapshot.json_details import snapshot_details
    from memscope.analysis.diagnosis.snapshot.text_report import snapshot_report

    return {
        "explanation": asdict(explain_analysis(analysis)),
        "details": snapshot_details(analysis),
        "report": snapshot_report(analysis),
    }


def explain_analysis(analysis: SnapshotAnalysis) -> Explanation:
    """Explain an analysed snapshot."""
    from memscope.analysis.diagnosis.snapshot import advice as snapshot_advice
    from memscope.analysis.diagnosis.snapshot import words as snapshot_words

    oom = analysis.oom
    free = oom.device_free_bytes if oom else None
    sizes_bytes = {
        "requested": oom.requested_bytes if oom else None,
        "free": free,
        "allocated": analysis.allocated_bytes,
        "reserved": analysis.reserved_bytes,
    }
    return Explanation(
        diagnosis=analysis.diagnosis,
        why=snapshot_words.why(analysis),
        source=Source.SNAPSHOT,
        device=analysis.device,
        sizes_bytes={name: value for name, value in sizes_bytes.items() if value is not None},
        device_name=f"device {analysis.device}, as far as the file says",
        shares=_shares(analysis),
        help=snapshot_advice.help_with(analysis),
        no_help=snapshot_advice.no_help_with(analysis),
        unknown=snapshot_words.unknown(analysis),
        notes=snapshot_words.notes(analysis),
    )


def _shares(analysis: SnapshotAnalysis) -> tuple[Share, ...]:
    """What PyTorch held, in parts that add up, and what the driver had left when it failed.

    The driver's part is left out if a limit kept torch from using it.
    """
    oom = analysis.oom
    held = analysis.buckets if oom is None else oom.buckets
    parts = (
        Share("torch, allocated", sum(b.allocated_bytes for b in held), ShareKind.ALLOCATED),
        *unused_shares(held),
        Share("the driver's when the request failed", oom.room_bytes if oom else 0, ShareKind.FREE),
    )
    return tuple(part for part in parts if part.bytes)


def unused_shares(held: Sequence[Bucket]) -> tuple[Share, ...]:
    """Unused memory in ``held``, split by what keeps torch from using it."""
    own = [bucket for bucket in held if not bucket.is_private]
    private = [bucket for bucket in held if bucket.is_private]
    parts = (
        Share(
            "torch, freed, another stream may use it",
            sum(b.pending_bytes for b in held),
            ShareKind.PENDING,
        ),
        Share(
            "torch, free in private pools", sum(b.free_bytes for b in private), ShareKind.PRIVATE
        ),
        Share(
            "torch, free, pinned by live blocks", sum(b.pinned_bytes for b in own), ShareKind.CACHED
        ),
        Share(
            "torch, free, can be given back",
            sum(b.releasable_bytes for b in own),
            ShareKind.RELEASABLE,
        ),
    )
    return tuple(part for part in parts if part.bytes)
