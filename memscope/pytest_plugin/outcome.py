"""What one test came to, as plain data: it travels from workers and ends in the artefact."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memscope.text import clean
from memscope.units import format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memscope.analysis.limits.limits import Verdict
    from memscope.analysis.metrics.metric import Metric
    from memscope.pytest_plugin.judgement import Judgement
    from memscope.pytest_plugin.measurement import Measurement

PREFIX = "memscope."


def make_outcome(measurement: Measurement, judgement: Judgement) -> dict[str, Any]:
    """Limits, metrics and recordings of a test; the outcome itself comes with pytest's report."""
    asked = measurement.asked
    return {
        "test": measurement.test,
        "is_marked": asked.is_marked,
        "limits": [_verdict(verdict) for verdict in judgement.verdicts],
        "reason": judgement.unmeasured or judgement.missing,
        "metrics": {name: _metric(metric) for name, metric in judgement.metrics.items()},
        "repeat": asked.repeat,
        "warmup": asked.warmup,
        "recordings": [str(path) for path in measurement.paths],
        "machine": asdict(judgement.machine) if judgement.machine is not None else None,
    }


def junit_properties(outcome: dict[str, Any]) -> list[tuple[str, object]]:
    """Measured metrics as numbers, verdicts as text, and where recordings lie."""
    properties: list[tuple[str, object]] = [
        (PREFIX + name, _number(metric["value"]))
        for name, metric in outcome["metrics"].items()
        if metric["value"] is not None
    ]
    for limit in outcome["limits"]:
        words = f"{limit['verdict']}: {limit['limit']}: {actual(limit)}"
        properties.append((f"{PREFIX}limit", clean(words)))
    properties += [(f"{PREFIX}recording", path) for path in outcome["recordings"]]
    return properties


def _number(value: float) -> float:
    """Whole ones without a fraction: bytes and counts."""
    return int(value) if float(value).is_integer() else value


def without_ours(properties: Sequence[tuple[str, object]]) -> list[tuple[str, object]]:
    """Properties that others set: those of an earlier run of the same test are void."""
    return [each for each in properties if not each[0].startswith(PREFIX)]


def actual(limit: dict[str, Any]) -> str:
    """The value with its unit, else the reason why there is none."""
    if limit["value"] is None:
        return limit["reason"] or "no reason given"
    return format_value(limit["value"], limit["unit"])


def _metric(metric: Metric) -> dict[str, Any]:
    found: dict[str, Any] = {"value": metric.value, "unit": metric.unit}
    if metric.value is None:
        found |= {"reason": metric.reason, "is_applicable": metric.is_applicable}
    return found


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "limit": verdict.limit,
        "value": verdict.value,
        "unit": verdict.unit,
        "verdict": str(verdict.verdict),  # xdist carries no enums
        "reason": verdict.reason,
        "advice": verdict.advice or None,
        "is_named": verdict.is_named,
    }
