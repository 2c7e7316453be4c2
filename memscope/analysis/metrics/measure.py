"""Metrics of a recording, and the readings and ratios that limits name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memscope.analysis.limits.limits import Limit
from memscope.analysis.limits.value_parsing import per_step
from memscope.analysis.metrics.expression import MetricExpression, Term
from memscope.analysis.metrics.growth import measure_growth, unit_measured
from memscope.analysis.metrics.memory import find_device
from memscope.analysis.metrics.metric import (
    DeviceValue,
    Metric,
    Missing,
    highest_of,
    lowest_of,
    make_metric,
)
from memscope.analysis.metrics.table import metrics
from memscope.analysis.timeline.reading_fold import DeviceReadings
from memscope.analysis.timeline.reading_names import BY_NAME
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import probe_fact
from memscope.readings import PEAK_REGISTERS

NO_STEP_AFTER_WARMUP = "it was not read within a step after warm-up"


def measure(timeline: Timeline, limits: Sequence[Limit] = ()) -> dict[str, Metric]:
    """Every metric of the table and every other value that ``limits`` name, by ``Limit.metric``."""
    by_name = metrics(timeline)
    for limit in limits:
        if not limit.expression.is_metric and limit.metric not in by_name:
            measured = _measure_expression(timeline, limit.expression, by_name)
            unit = limit.unit
            if measured.value is not None:
                unit = unit_measured(timeline, per_step(unit))
            by_name[limit.metric] = replace(measured, name=limit.metric, unit=unit)
    return by_name


def _measure_expression(
    timeline: Timeline, expression: MetricExpression, by_name: Mapping[str, Metric]
) -> Metric:
    over = _measure_term(timeline, expression.over, by_name)
    if expression.under is None or over.value is None:
        return over
    under = _measure_term(timeline, expression.under, by_name)
    return under if under.value is None else _divide(over, under)


def _divide(over: Metric, under: Metric) -> Metric:
    """The ratio of two metrics with values, and the devices of both."""
    assert over.value is not None
    if not under.value:
        return make_metric(over.name, "ratio", Missing(f"{under.name} is 0"))
    places = dict.fromkeys(filter(None, (over.device, under.device)))
    of = " / ".join(places) or None
    return Metric(over.name, over.value / under.value, "ratio", device=of, device_words=of)


def _measure_term(timeline: Timeline, term: Term, by_name: Mapping[str, Metric]) -> Metric:
    if term.reading_name:
        measured = measure_statistic(timeline, term.reading_name, term.statistic, term.device)
        return make_metric(term.name, term.unit or "", measured)
    metric = by_name.get(term.name)
    if metric is None:
        return make_metric(term.name, "", Missing("this recording has no such part"))
    if metric.value is None:
        return replace(metric, reason=f"{term.name}: {metric.reason}")
    return metric


def measure_statistic(
    timeline: Timeline, reading_name: str, statistic: str, device: int | None = None
) -> DeviceValue | Missing:
    """One statistic of a reading: the highest of several devices, or the lowest for "min".

    Peak, min and end are exact and cover all readings; a peak includes torch's own peak counter
    if there is one. p95 and median cover readings inside steps after warm-up (all readings if
    there are no steps) and are at most 0.2 % too high. Growth is the slope of the floors, per
    step.
    """
    known = _on_device(timeline.readings_of(reading_name), device)
    if not known:
        return _why_missing(timeline, reading_name, device)
    if statistic == "growth":
        return _fastest(timeline, known)
    if statistic == "peak":
        registers = timeline.readings_of(PEAK_REGISTERS.get(reading_name, ""))
        return highest_of(_peaks(known, _on_device(registers, device)))
    if statistic in ("p95", "median"):
        share = 0.95 if statistic == "p95" else 0.5
        inside = {place: each.inside for place, each in known.items() if len(each.inside)}
        percentiles = {place: each.percentile(share) for place, each in inside.items()}
        return highest_of(percentiles) if percentiles else Missing(NO_STEP_AFTER_WARMUP)
    if statistic == "min":
        return lowest_of({place: each.series.floor for place, each in known.items()})
    return highest_of({place: each.series.latest for place, each in known.items()})


def _peaks(*readings: Mapping[int, DeviceReadings]) -> dict[int, float]:
    peaks: dict[int, float] = {}
    for found in readings:
        for place, each in found.items():
            peaks[place] = max(each.series.peak, peaks.get(place, each.series.peak))
    return peaks


def _on_device(
    readings: dict[int, DeviceReadings], device: int | None
) -> dict[int, DeviceReadings]:
    """Readings of one device. Readings without a device belong to the first one."""
    if device is None:
        return readings
    if device in readings:
        return {device: readings[device]}
    return {-1: readings[-1]} if device == 0 and -1 in readings else {}


def _fastest(timeline: Timeline, known: dict[int, DeviceReadings]) -> DeviceValue | Missing:
    growths = {place: measure_growth(timeline, each.series) for place, each in known.items()}
    slopes = {
        place: growth.slope for place, growth in growths.items() if not isinstance(growth, Missing)
    }
    missing = next((growth for growth in growths.values() if isinstance(growth, Missing)), None)
    return highest_of(slopes) if slopes or missing is None else missing


def _why_missing(timeline: Timeline, reading_name: str, device: int | None) -> Missing:
    """Why a reading is missing, with its probe's reason if there is one."""
    place = "" if device is None else f" of {'the host' if device < 0 else f'cuda:{device}'}"
    if device is not None and timeline.readings_of(reading_name):
        return Missing(f"{reading_name}{place} is not in this recording")
    host = find_device(timeline)
    if reading_name.startswith("torch.") and host is not None and host.is_host:
        return Missing("torch's caching allocator serves GPUs, and this is a host device", False)
    reason = _probe_reason(timeline, reading_name)
    return Missing(f"{reading_name} is not in this recording{f': {reason}' if reason else ''}")


def _probe_reason(timeline: Timeline, reading_name: str) -> str:
    known = BY_NAME.get(reading_name)
    if known is None or not known.probe:
        return ""
    for key in (known.probe, probe_fact(known.probe)):
        absent, stopped = timeline.fact(key, "absent"), timeline.fact(key, "stopped")
        if isinstance(absent, dict):
            absent = absent.get(reading_name) or absent.get(known.probe)
        if absent or stopped:
            return str(absent or stopped)
    return ""
