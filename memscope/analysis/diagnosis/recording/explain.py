"""Why memory ran out, from a recording: its last out-of-memory error and the plan before it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from memscope.analysis.diagnosis.balance import decide
from memscope.analysis.diagnosis.explanation import Advice, Explanation
from memscope.analysis.diagnosis.recording.explanation import SOURCE, explain_error, explain_oom
from memscope.analysis.diagnosis.recording.killed import host_full
from memscope.analysis.diagnosis.recording.oom import RecordedOom, make_situation, read_oom
from memscope.analysis.diagnosis.situation import Situation, torch_size
from memscope.analysis.timeline.facts import read_plan
from memscope.facts import Fact, probe_fact
from memscope.plan import Plan, fitting_keep, with_keep, with_policy

if TYPE_CHECKING:
    from memscope.analysis.timeline.rare_rows import OutOfMemory
    from memscope.analysis.timeline.timeline import Timeline
    from memscope.interop.oom_log.sizes import Size
    from memscope.reader.scanner import State


def explain_timeline(timeline: Timeline, state: State) -> Explanation:
    """The explanation of a recording; diagnosis None where no memory error is in it."""
    engine = [oom for oom in timeline.ooms if oom.scope == "engine"]
    if engine:
        explanation = _explain_engine(_choose(engine, timeline), timeline)
    elif timeline.ooms:
        explanation = _explain_requests(timeline)
    else:
        explanation = _explain_nothing(timeline, state)
    notes = (*explanation.notes, *_notes(timeline, state))
    return dataclasses.replace(explanation, notes=notes, is_partial=state.is_partial)


def oom_sentence(timeline: Timeline) -> str | None:
    """Why memory ran out, in one paragraph, where a program of torch ran out of it."""
    engine = [oom for oom in timeline.ooms if oom.scope == "engine"]
    if not engine:
        return None
    count = timeline.oom_counts["engine"]
    times = f" {count:,} times" if count > 1 else ""
    oom = _choose(engine, timeline)
    where = f" in step {oom.step:,}" if oom.step >= 0 else ""
    return f"Out of memory{times}{where}. {_explain_engine(oom, timeline).why}"


def _choose(engine: list[OutOfMemory], timeline: Timeline) -> OutOfMemory:
    """The last error; the one that has the map where the two fail alike."""
    last, moment = engine[-1], timeline.map_rows.t_ns
    mapped = next((oom for oom in engine if oom.t_ns == moment and not oom.error), None)
    if mapped is None or last.error:
        return last
    kinds = {decide(make_situation(oom, timeline).balance) for oom in (mapped, last)}
    return mapped if len(kinds) == 1 else last


def _explain_nothing(timeline: Timeline, state: State) -> Explanation:
    host = host_full(timeline, state)
    if host is not None and host.is_proven:
        return Explanation(
            "not_device_memory",
            f"Host memory, not the device: {host.sentence}",
            SOURCE,
            help=(Advice("a higher memory limit of the container", "its limit is what ran out"),),
        )
    killed = f" {host.sentence}" if host else ""
    why = f"No out-of-memory error is recorded ({_length(timeline)}; {state}).{killed}"
    return Explanation(None, why, SOURCE)


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
        return _explain_budget(recorded, plan)
    found = explain_oom(
        recorded,
        no_owners=_reason(timeline, probe_fact("oom"), "owners"),
        no_map="" if timeline.map_rows.t_ns >= 0 else _reason(timeline, Fact.MAP, "reason"),
    )
    if plan is None:
        return found
    counted = f"The plan had counted on {torch_size(plan.needed_bytes)}, which fits."
    return dataclasses.replace(found, notes=(*found.notes, counted))


def _reason(timeline: Timeline, key: str, field: str) -> str:
    text = timeline.fact(key, field)
    return text if isinstance(text, str) else ""


def _explain_budget(recorded: RecordedOom, plan: Plan) -> Explanation:
    """The plan did not fit from the start, whatever the map says."""
    return dataclasses.replace(
        explain_oom(recorded),
        diagnosis="server_budget",
        why=_why_budget(recorded.situation, plan),
        help=_plan_help(plan, recorded.situation.message.total),
        no_help=_plan_no_help(plan),
        unknown=(),
    )


def _why_budget(situation: Situation, plan: Plan) -> str:
    needs = plan.needs
    parts = [f"{torch_size(plan.weights_bytes)} of weights", f"{torch_size(needs.kv_bytes)} of KV"]
    parts += [f"{torch_size(needs.fixed_bytes)} fixed"] if needs.fixed_bytes else []
    return (
        f"The budget was too small from the start: {plan.window.options} needs "
        f"{torch_size(plan.needed_bytes)} ({', '.join(parts)}) and may use "
        f"{torch_size(plan.limit_bytes)}. The request for {torch_size(situation.wanted)} found "
        f"{torch_size(situation.balance.room.bytes if situation.balance.room else 0)} left."
    )


def _plan_help(plan: Plan, total: Size | None) -> tuple[Advice, ...]:
    """Windows that fit, and the limit with which this one does, where the device has as much."""
    fitting = []
    for policy in dict.fromkeys((plan.window.policy, "past", "pinned")):
        changed = plan if policy == plan.window.policy else with_policy(plan, policy)
        keep = fitting_keep(changed)
        if keep is not None:
            fitted = with_keep(changed, keep)
            saved = plan.needed_bytes - fitted.needed_bytes
            needed = f"fits: needs {torch_size(fitted.needed_bytes)}"
            fitting.append(Advice(fitted.window.options, needed, saved))
    if total is not None and total.bytes < plan.needed_bytes:
        return tuple(fitting)
    limit = Advice(
        f"--device-limit {-(-plan.needed_bytes >> 20)}MiB",
        "where the device has as much",
    )
    return (*fitting, limit)


def _plan_no_help(plan: Plan) -> tuple[Advice, ...]:
    return (Advice("--allocator ...", "whatever gives the bytes, they are more than the limit"),)


def _explain_requests(timeline: Timeline) -> Explanation:
    count = timeline.oom_counts["request"]
    return Explanation(
        "server_budget",
        f"{count:,} requests were lost to memory: the KV blocks ran out, the engine went on.",
        SOURCE,
        help=(
            Advice("fewer requests at once, shorter ones", "each holds its blocks"),
            Advice("more of the device for KV blocks", "fewer layers kept, smaller weights"),
        ),
        unknown=("whether they would have fitted one after the other",),
    )


def _which(timeline: Timeline) -> str:
    engine = [oom for oom in timeline.ooms if oom.scope == "engine"]
    return "the last kept" if _choose(engine, timeline) is engine[-1] else "the one with the map"


def _notes(timeline: Timeline, state: State) -> tuple[str, ...]:
    notes = []
    engine, requests = timeline.oom_counts["engine"], timeline.oom_counts["request"]
    if engine > 1:
        notes.append(f"{engine:,} out-of-memory errors are recorded; this is {_which(timeline)}.")
    if engine and requests:
        notes.append(f"{requests:,} requests were lost to memory besides.")
    if state.is_partial:
        notes.append(f"The recording is partial: {state}.")
    return tuple(notes)
