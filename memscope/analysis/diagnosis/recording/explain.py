"""Explain a recording: why its last out-of-memory error happened, or that there was none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memscope.analysis.diagnosis.balance import decide
from memscope.analysis.diagnosis.explanation import Advice, Diagnosis, Explanation, Source
from memscope.analysis.diagnosis.recording.counted_error import explain_error, explain_oom
from memscope.analysis.diagnosis.recording.evidence import make_request, read_oom
from memscope.analysis.diagnosis.recording.host_memory import host_full
from memscope.analysis.diagnosis.recording.plan_budget import explain_budget
from memscope.analysis.diagnosis.torch_advice import CONTAINER_LIMIT
from memscope.analysis.timeline.facts import read_plan
from memscope.analysis.timeline.rare_rows import OomScope
from memscope.facts import Fact, probe_fact
from memscope.units import torch_size

if TYPE_CHECKING:
    from memscope.analysis.timeline.rare_rows import OutOfMemory
    from memscope.analysis.timeline.timeline import Timeline
    from memscope.format.header import Header
    from memscope.reader.scanner import State

_NEVER_NS = 1 << 63


@dataclass(frozen=True, slots=True)
class _Process:
    """One process. ``failed_at_ns``: its first error, by the wall clock."""

    header: Header
    explanation: Explanation
    failed_at_ns: int

    @property
    def name(self) -> str:
        rank = self.header.rank
        return f"process {self.header.pid}" + ("" if rank is None else f" (rank {rank})")


def explain_run(processes: Iterable[tuple[Timeline, State]]) -> Explanation:
    """Explain a run of several processes: the first that ran out of memory, else the first."""
    explained = [_explain_process(timeline, state) for timeline, state in processes]
    failed = [process for process in explained if process.explanation.diagnosis is not None]
    chosen = min(failed, key=lambda process: process.failed_at_ns, default=explained[0])
    explanation = chosen.explanation
    if len(explained) == 1:
        return explanation
    note = f"None of {len(explained):,} processes ran out of memory."
    if failed:
        note = (
            f"{len(failed):,} of {len(explained):,} processes ran out of memory. This is "
            f"{chosen.name}, the first."
        )
    is_partial = any(process.explanation.is_partial for process in explained)
    return dataclasses.replace(explanation, notes=(*explanation.notes, note), is_partial=is_partial)


def explain_timeline(timeline: Timeline, state: State) -> Explanation:
    """Explain one recording. The diagnosis is None if it contains no memory error."""
    engine = _engine_errors(timeline)
    if engine:
        explanation = _explain_engine(_choose(engine, timeline), timeline)
    elif timeline.ooms:
        explanation = _explain_requests(timeline)
    else:
        explanation = _explain_nothing(timeline, state)
    notes = (*explanation.notes, *_notes(timeline, state))
    return dataclasses.replace(explanation, notes=notes, is_partial=state.is_partial)


def _explain_process(timeline: Timeline, state: State) -> _Process:
    first = min((oom.t_ns for oom in timeline.ooms), default=None)
    start_ns = timeline.header.started_at_ns
    failed_at_ns = _NEVER_NS if first is None else start_ns + first
    return _Process(timeline.header, explain_timeline(timeline, state), failed_at_ns)


def oom_sentence(timeline: Timeline) -> str | None:
    """Why memory ran out, as one paragraph; None if it did not."""
    engine = _engine_errors(timeline)
    if not engine:
        return None
    count = timeline.oom_counts[OomScope.ENGINE]
    times = f" {count:,} times" if count > 1 else ""
    oom = _choose(engine, timeline)
    where = f" in step {oom.step:,}" if oom.step >= 0 else ""
    return f"Out of memory{times}{where}. {_explain_engine(oom, timeline).why}"


def _engine_errors(timeline: Timeline) -> list[OutOfMemory]:
    return [oom for oom in timeline.ooms if oom.scope == OomScope.ENGINE]


def _choose(engine: list[OutOfMemory], timeline: Timeline) -> OutOfMemory:
    """The last error, or the one with a map if both have the same diagnosis."""
    last, moment = engine[-1], timeline.map_rows.t_ns
    mapped = next((oom for oom in engine if oom.t_ns == moment and not oom.error), None)
    if mapped is None or last.error:
        return last
    kinds = {decide(make_request(oom, timeline).balance) for oom in (mapped, last)}
    return mapped if len(kinds) == 1 else last


def _explain_nothing(timeline: Timeline, state: State) -> Explanation:
    host = host_full(timeline, state)
    if host is not None and host.is_proven:
        return Explanation(
            Diagnosis.NOT_DEVICE_MEMORY,
            f"Host memory ran out, not GPU memory. {host.sentence}",
            Source.RECORDING,
            help=(Advice(CONTAINER_LIMIT.setting, "this limit ran out"),),
        )
    killed = f" {host.sentence}" if host else ""
    why = f"No out-of-memory error is recorded ({_length(timeline)}; {state}).{killed}"
    return Explanation(None, why, Source.RECORDING)


def _length(timeline: Timeline) -> str:
    if timeline.are_steps_seconds:
        count = len(timeline.steps)
        return f"{count:,} second{'s' * (count != 1)}"
    count = len(timeline.own_steps)
    return f"{count:,} step{'s' * (count != 1)} ended"


def _explain_engine(oom: OutOfMemory, timeline: Timeline) -> Explanation:
    if oom.error:
        return explain_error(oom, timeline)
    recorded = read_oom(oom, timeline)
    plan = read_plan(timeline.facts)
    if plan is not None and not plan.is_fitting:
        return explain_budget(recorded, plan)
    found = explain_oom(
        recorded,
        no_owners=_reason(timeline, probe_fact("oom"), "owners"),
        no_map="" if timeline.map_rows.t_ns >= 0 else _reason(timeline, Fact.MAP, "reason"),
    )
    if plan is None:
        return found
    counted = f"The plan needed {torch_size(plan.needed_bytes)}, which fits."
    return dataclasses.replace(found, notes=(*found.notes, counted))


def _reason(timeline: Timeline, key: str, field: str) -> str:
    text = timeline.fact(key, field)
    return text if isinstance(text, str) else ""


def _explain_requests(timeline: Timeline) -> Explanation:
    count = timeline.oom_counts[OomScope.REQUEST]
    return Explanation(
        Diagnosis.SERVER_BUDGET,
        f"{count:,} requests failed for lack of memory: the KV blocks ran out. The engine went on.",
        Source.RECORDING,
        help=(
            Advice("fewer requests at once, shorter ones", "each holds its own blocks"),
            Advice("more of the device for KV blocks", "fewer layers kept, smaller weights"),
        ),
        unknown=("whether they would have fitted one after another",),
    )


def _which(timeline: Timeline) -> str:
    engine = _engine_errors(timeline)
    return "the last one" if _choose(engine, timeline) is engine[-1] else "the one with the map"


def _notes(timeline: Timeline, state: State) -> tuple[str, ...]:
    notes = []
    engine, requests = timeline.oom_counts[OomScope.ENGINE], timeline.oom_counts[OomScope.REQUEST]
    if engine > 1:
        notes.append(f"{engine:,} out-of-memory errors are recorded. This is {_which(timeline)}.")
    if engine and requests:
        notes.append(f"Another {requests:,} requests failed for lack of memory.")
    if state.is_partial:
        notes.append(f"The recording is partial: {state}.")
    return tuple(notes)
