"""The result of one test as plain data, as xdist and memscope-results.json carry it."""

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


def make_result(measurement: Measurement, judgement: Judgement) -> dict[str, Any]:
    """Limits, metrics and recordings of a test. Passed or failed comes later, from pytest."""
    settings = measurement.settings
    return {
        "test": measurement.test,
        "is_marked": settings.is_marked,
        "limits": [_verdict(verdict) for verdict in judgement.verdicts],
        "reason": judgement.unmeasured or judgement.missing,
        "metrics": {name: _metric(metric) for name, metric in judgement.metrics.items()},
        "repeat": settings.repeat,
        "warmup": settings.warmup,
        "recordings": [str(path) for path in measurement.paths],
        "machine": asdict(judgement.machine) if judgement.machine is not None else None,
    }


def junit_properties(result: dict[str, Any]) -> list[tuple[str, object]]:
    """Properties for JUnit: metrics as numbers, verdicts as text, and the recordings' paths."""
    properties: list[tuple[str, object]] = [
        (PREFIX + name, _number(metric["value"]))
        for name, metric in result["metrics"].items()
        if metric["value"] is not None
    ]
    for limit in result["limits"]:
        words = f"{limit['verdict']}: {limit['limit']}: {actual(limit)}"
        properties.append((f"{PREFIX}limit", clean(words)))
    properties += [(f"{PREFIX}recording", path) for path in result["recordings"]]
    return properties


def _number(value: float) -> float:
    """Bytes and counts without a fraction."""
    return int(value) if float(value).is_integer() else value


def without_ours(properties: Sequence[tuple[str, object]]) -> list[tuple[str, object]]:
    """The properties that memscope did not set: a rerun sets its own anew."""
    return [each for each in properties if not each[0].startswith(PREFIX)]


def actual(limit: dict[str, Any]) -> str:
    """The value with its unit, or the reason why there is none."""
    if limit["value"] is None:
        return limit["reason"] or "no reason given"
    return format_value(limit["value"], limit["unit"])


def _metric(metric: Metric) -> dict[str, Any]:
    data: dict[str, Any] = {"value": metric.value, "unit": metric.unit}
    if metric.value is None:
        data |= {"reason": metric.reason, "is_applicable": metric.is_applicable}
    return data


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
