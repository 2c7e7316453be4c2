"""Explain errors of our runner if its own plan did not fit from the start."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from memscope.analysis.diagnosis.explanation import Advice, Diagnosis, Explanation
from memscope.analysis.diagnosis.failed_request import FailedRequest
from memscope.analysis.diagnosis.recording.counted_error import explain_oom
from memscope.analysis.diagnosis.recording.evidence import RecordedOom
from memscope.plan import Plan, fitting_keep, with_keep, with_policy
from memscope.units import torch_size

if TYPE_CHECKING:
    from memscope.interop.oom_log.sizes import Size


def explain_budget(recorded: RecordedOom, plan: Plan) -> Explanation:
    """Explain an error whose plan did not fit from the start, whatever the map says."""
    return dataclasses.replace(
        explain_oom(recorded),
        diagnosis=Diagnosis.SERVER_BUDGET,
        why=_why_budget(recorded.request, plan),
        help=_plan_help(plan, recorded.request.message.total),
        no_help=_plan_no_help(plan),
        unknown=(),
    )


def _why_budget(request: FailedRequest, plan: Plan) -> str:
    needs = plan.needs
    parts = [f"{torch_size(plan.weights_bytes)} of weights", f"{torch_size(needs.kv_bytes)} of KV"]
    parts += [f"{torch_size(needs.fixed_bytes)} fixed"] if needs.fixed_bytes else []
    return (
        f"The budget was too small from the start: {plan.window.options} needs "
        f"{torch_size(plan.needed_bytes)} ({', '.join(parts)}) and may use "
        f"{torch_size(plan.limit_bytes)}. {torch_size(request.wanted_bytes)} was requested when "
        f"{torch_size(request.balance.room.bytes if request.balance.room else 0)} was left."
    )


def _plan_help(plan: Plan, total: Size | None) -> tuple[Advice, ...]:
    """Windows that fit, and the limit that this window needs if the device has that much."""
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
        "if the device has that much",
    )
    return (*fitting, limit)


def _plan_no_help(plan: Plan) -> tuple[Advice, ...]:
    return (Advice("--allocator ...", "every allocator needs more than the limit"),)
