"""Figures of a recording, and the metrics and ratios that limits name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memscope.analysis.limits.limits import Limit
from memscope.analysis.limits.written_value import per_step
from memscope.analysis.metrics.figure import Figure, Highest, Missing, highest_of, make_figure
from memscope.analysis.metrics.figures import figures
from memscope.analysis.metrics.growth import measure_growth, unit_measured
from memscope.analysis.metrics.memory import find_device
from memscope.analysis.metrics.metric_names import BY_NAME, PEAK_REGISTERS
from memscope.analysis.metrics.quantity import Quantity, Term
from memscope.analysis.timeline.metrics import MetricReadings
from memscope.analysis.timeline.timeline import Timeline

NO_STEP_AFTER_WARMUP = "no reading of it was taken within a step after warm-up"


def measure(timeline: Timeline, limits: Sequence[Limit] = ()) -> dict[str, Figure]:
    """Every figure of the table, and what else ``limits`` name, by ``Limit.figure``."""
    found = figures(timeline)
    for limit in limits:
        if not limit.quantity.is_figure and limit.figure not in found:
            measured = _measure_quantity(timeline, limit.quantity, found)
            unit = limit.unit
            if measured.value is not None:
                unit = unit_measured(timeline, per_step(unit))
            found[limit.figure] = replace(measured, name=limit.figure, unit=unit)
    return found


def _measure_quantity(
    timeline: Timeline, quantity: Quantity, found: Mapping[str, Figure]
) -> Figure:
    over = _measure_term(timeline, quantity.over, found)
    if quantity.under is None or over.value is None:
        return over
    under = _measure_term(timeline, quantity.under, found)
    return under if under.value is None else _divide(over, under)


def _divide(over: Figure, under: Figure) -> Figure:
    """The ratio of two that have values, and of which devices they are."""
    assert over.value is not None
    if not under.value:
        return make_figure(over.name, "ratio", Missing(f"{under.name} is 0"))
    places = dict.fromkeys(filter(None, (over.device, under.device)))
    of = " / ".join(places) or None
    return Figure(over.name, over.value / under.value, "ratio", device=of, of=of)


def _measure_term(timeline: Timeline, term: Term, found: Mapping[str, Figure]) -> Figure:
    if term.metric:
        measured = measure_metric(timeline, term.metric, term.statistic, term.device)
        return make_figure(term.name, term.unit or "", measured)
    figure = found.get(term.name)
    if figure is None:
        return make_figure(term.name, "", Missing("this recording has no such part"))
    if figure.value is None:
        return replace(figure, reason=f"{term.name}: {figure.reason}")
    return figure


def measure_metric(
    timeline: Timeline, metric: str, statistic: str, device: int | None = None
) -> Highest | Missing:
    """One statistic of a metric; of several devices the highest, of "min" the lowest.

    Peak, min and end are those of all readings, and exact; a peak takes the register in as well,
    where there is one. p95 and median are of readings inside steps after warm-up (of all where the
    program has no steps) and at most 0.2 % too high. Growth is that of floors, a step.
    """
    known = _on_device(timeline.metric(metric), device)
    if not known:
        return _why_missing(timeline, metric, device)
    if statistic == "growth":
        return _fastest(timeline, known)
    if statistic == "peak":
        registers = timeline.metric(PEAK_REGISTERS.get(metric, ""))
        return highest_of(_peaks(known, _on_device(registers, device)))
    if statistic in ("p95", "median"):
        share = 0.95 if statistic == "p95" else 0.5
        inside = {place: each.inside for place, each in known.items() if len(each.inside)}
        found = {place: each.percentile(share) for place, each in inside.items()}
        return highest_of(found) if found else Missing(NO_STEP_AFTER_WARMUP)
    if statistic == "min":
        return highest_of(
            {place: each.series.floor for place, each in known.items()}, is_lowest=True
        )
    return highest_of({place: each.series.latest for place, each in known.items()})


def _peaks(*readings: Mapping[int, MetricReadings]) -> dict[int, float]:
    peaks: dict[int, float] = {}
    for found in readings:
        for place, each in found.items():
            peaks[place] = max(each.series.peak, peaks.get(place, each.series.peak))
    return peaks


def _on_device(
    readings: dict[int, MetricReadings], device: int | None
) -> dict[int, MetricReadings]:
    """Those of one device; what was read without one is of the first."""
    if device is None:
        return readings
    if device in readings:
        return {device: readings[device]}
    return {-1: readings[-1]} if device == 0 and -1 in readings else {}


def _fastest(timeline: Timeline, known: dict[int, MetricReadings]) -> Highest | Missing:
    growths = {place: measure_growth(timeline, each.series) for place, each in known.items()}
    slopes = {
        place: growth.slope for place, growth in growths.items() if not isinstance(growth, Missing)
    }
    missing = next((growth for growth in growths.values() if isinstance(growth, Missing)), None)
    return highest_of(slopes) if slopes or missing is None else missing


def _why_missing(timeline: Timeline, metric: str, device: int | None) -> Missing:
    """The reason that its probe gave, where it gave one."""
    place = "" if device is None else f" of {'the host' if device < 0 else f'cuda:{device}'}"
    if device is not None and timeline.metric(metric):
        return Missing(f"{metric}{place} is not in this recording")
    host = find_device(timeline)
    if metric.startswith("torch.") and host is not None and host.is_host:
        return Missing("torch's caching allocator serves GPUs, and this is a host device", False)
    reason = _probe_reason(timeline, metric)
    return Missing(f"{metric} is not in this recording{f': {reason}' if reason else ''}")


def _probe_reason(timeline: Timeline, metric: str) -> str:
    known = BY_NAME.get(metric)
    if known is None or not known.probe:
        return ""
    for key in (known.probe, f"probe.{known.probe}"):
        absent, stopped = timeline.fact(key, "absent"), timeline.fact(key, "stopped")
        if isinstance(absent, dict):
            absent = absent.get(metric) or absent.get(known.probe)
        if absent or stopped:
            return str(absent or stopped)
    return ""
