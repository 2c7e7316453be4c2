"""Why memory ran out, from a recording: its last out-of-memory error and the plan before it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from memscope.analysis.explanation import FIGURES, Advice, Explanation
from memscope.analysis.memory import find_device
from memscope.analysis.oom_advice import advise
from memscope.analysis.oom_balance import Balance, decide
from memscope.analysis.oom_card import card_shares
from memscope.analysis.oom_situation import Situation, torch_size
from memscope.analysis.oom_words import write_why
from memscope.interop.log_context import LogContext
from memscope.interop.oom_formats import OomMessage
from memscope.interop.sizes import Size
from memscope.plan import Needs, Plan, Window, fitting_keep, with_keep, with_policy

if TYPE_CHECKING:
    from memscope.analysis.rare_rows import OutOfMemory
    from memscope.analysis.timeline import Timeline
    from memscope.storage import State

_SOURCE = "recording"


def explain_timeline(timeline: Timeline, state: State) -> Explanation:
    """The explanation of a recording; diagnosis None where no memory error is in it."""
    engine = [oom for oom in timeline.ooms if oom.scope == "engine"]
    if engine:
        explanation = _explain_engine(engine[-1], timeline)
    elif timeline.ooms:
        explanation = _explain_requests(timeline)
    else:
        steps = len(timeline.steps)
        why = f"No out-of-memory error is recorded ({steps:,} steps ended; {state})."
        explanation = Explanation(None, why, _SOURCE)
    return dataclasses.replace(explanation, notes=(*explanation.notes, *_notes(timeline, state)))


def read_plan(timeline: Timeline) -> Plan | None:
    """The plan that the recorded program made; None where there is none that makes sense."""
    data = timeline.facts.get("plan")
    if not isinstance(data, dict):
        return None
    numbers = {field.name: data.get(field.name, 0) for field in dataclasses.fields(Needs)}
    numbers["limit_bytes"] = data.get("limit_bytes")
    if not all(_is_count(number) for number in numbers.values()) or not numbers["layers"]:
        return None
    policy, keep = data.get("policy"), data.get("keep")
    if not isinstance(policy, str) or not (keep is None or _is_count(keep)):
        return None
    limit = numbers.pop("limit_bytes")
    return Plan(Needs(**numbers), Window(policy, keep, data.get("prefetch") is True), limit)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60


def _explain_engine(oom: OutOfMemory, timeline: Timeline) -> Explanation:
    message = _message(oom)
    device = find_device(timeline)
    name = device.name if device else "the device"
    situation = Situation(message, Balance(message), LogContext(), device_name=name)
    plan = read_plan(timeline)
    if plan is not None and not plan.is_fitting:
        diagnosis, why = "server_budget", _why_budget(situation, plan)
        help_, no_help = _plan_help(plan), _plan_no_help(plan)
        unknown: tuple[str, ...] = ()
    else:
        diagnosis = decide(situation.balance)
        why, counsel = write_why(diagnosis, situation), advise(diagnosis, situation)
        help_, no_help, unknown = counsel.help, counsel.no_help, counsel.unknown
    return Explanation(
        diagnosis=diagnosis,
        why=why,
        source=_SOURCE,
        device=0,
        device_name=name,
        figures={key: size.bytes for key in FIGURES if (size := getattr(message, key)) is not None},
        shares=card_shares(_within_limit(situation.balance)),
        help=help_,
        no_help=no_help,
        unknown=unknown,
        notes=_engine_notes(oom, plan),
    )


def _message(oom: OutOfMemory) -> OomMessage:
    def size(key: str) -> Size | None:
        value = oom.figures.get(key)
        return Size(value) if value is not None and _is_count(value) else None

    return OomMessage(
        "recorded",
        requested=Size(oom.requested_bytes) if oom.requested_bytes >= 0 else None,
        total=size("total"),
        free=size("free"),
        allocated=size("allocated"),
        reserved=size("reserved"),
        limit=size("limit"),
    )


def _within_limit(balance: Balance) -> Balance:
    """The same with the limit as its card, where that is what ran out."""
    message = balance.message
    if not balance.is_capped or message.limit is None:
        return balance
    return Balance(dataclasses.replace(message, total=message.limit, free=balance.room, limit=None))


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


def _plan_help(plan: Plan) -> tuple[Advice, ...]:
    """Windows that fit, and the limit with which this one does."""
    fitting = []
    for policy in dict.fromkeys((plan.window.policy, "past", "pinned")):
        changed = plan if policy == plan.window.policy else with_policy(plan, policy)
        keep = fitting_keep(changed)
        if keep is not None:
            fitted = with_keep(changed, keep)
            saved = plan.needed_bytes - fitted.needed_bytes
            needed = f"fits: needs {torch_size(fitted.needed_bytes)}"
            fitting.append(Advice(fitted.window.options, needed, saved))
    limit = Advice(
        f"--device-limit {-(-plan.needed_bytes >> 20)}MiB",
        "where the device has as much",
    )
    return (*fitting, limit)


def _plan_no_help(plan: Plan) -> tuple[Advice, ...]:
    return (Advice("--allocator ...", "whatever gives the bytes, they are more than the limit"),)


def _engine_notes(oom: OutOfMemory, plan: Plan | None) -> tuple[str, ...]:
    where = f"It failed in step {oom.step:,}." if oom.step >= 0 else "It failed before step 0."
    if plan is None or not plan.is_fitting:
        return (where,)
    return (where, f"The plan had counted on {torch_size(plan.needed_bytes)}, which fits.")


def _explain_requests(timeline: Timeline) -> Explanation:
    count = timeline.oom_counts["request"]
    return Explanation(
        "server_budget",
        f"{count:,} requests were lost to memory: the KV blocks ran out, the engine went on.",
        _SOURCE,
        help=(
            Advice("fewer requests at once, shorter ones", "each holds its blocks"),
            Advice("more of the device for KV blocks", "fewer layers kept, smaller weights"),
        ),
        unknown=("whether they would have fitted one after the other",),
    )


def _notes(timeline: Timeline, state: State) -> tuple[str, ...]:
    notes = []
    engine, requests = timeline.oom_counts["engine"], timeline.oom_counts["request"]
    if engine > 1:
        notes.append(f"{engine:,} out-of-memory errors are recorded; this is the last kept.")
    if engine and requests:
        notes.append(f"{requests:,} requests were lost to memory besides.")
    if state.is_partial:
        notes.append(f"The recording is partial: {state}.")
    return tuple(notes)
