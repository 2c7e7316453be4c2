"""Why memory ran out in a run of several processes: of the one that ran out first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.recording.explain import explain_timeline

if TYPE_CHECKING:
    from memscope.analysis.timeline.timeline import Timeline
    from memscope.format.header import Header
    from memscope.reader.scanner import State

NEVER_NS = 1 << 63


@dataclass(frozen=True, slots=True)
class _Process:
    """One process. ``failed_at_ns``: its first error by the wall clock."""

    header: Header
    explanation: Explanation
    failed_at_ns: int

    @property
    def name(self) -> str:
        rank = self.header.rank
        return f"process {self.header.pid}" + ("" if rank is None else f" (rank {rank})")


def explain_run(processes: Iterable[tuple[Timeline, State]]) -> Explanation:
    """The explanation of the first process that ran out; of the first one where none did."""
    found = [_explain(timeline, state) for timeline, state in processes]
    failed = [process for process in found if process.explanation.diagnosis is not None]
    chosen = min(failed, key=lambda process: process.failed_at_ns, default=found[0])
    explanation = chosen.explanation
    if len(found) == 1:
        return explanation
    note = f"None of {len(found):,} processes ran out of memory."
    if failed:
        note = (
            f"{len(failed):,} of {len(found):,} processes ran out of memory; this is "
            f"{chosen.name}, the first."
        )
    is_partial = any(process.explanation.is_partial for process in found)
    return dataclasses.replace(explanation, notes=(*explanation.notes, note), is_partial=is_partial)


def _explain(timeline: Timeline, state: State) -> _Process:
    first = min((oom.t_ns for oom in timeline.ooms), default=None)
    start_ns = timeline.header.started_at_ns
    failed_at_ns = NEVER_NS if first is None else start_ns + first
    return _Process(timeline.header, explain_timeline(timeline, state), failed_at_ns)
