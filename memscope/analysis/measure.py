"""Figures of a recording, and the metrics and ratios that limits name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memscope.analysis.figure import Figure, Measured, Missing, make_figure
from memscope.analysis.figures import figures
from memscope.analysis.growth import measure_growth
from memscope.analysis.limits import Limit
from memscope.analysis.memory import find_device
from memscope.analysis.metric_names import BY_NAME, PEAK_REGISTERS
from memscope.analysis.metrics import MetricReadings
from memscope.analysis.quantity import Term
from memscope.analysis.timeline import Timeline

NO_STEP_AFTER_WARMUP = "no reading of it was taken within a step after warm-up"


def measure(timeline: Timeline, limits: Sequence[Limit] = ()) -> dict[str, Figure]:
    """Every figure of the table, and what else ``limits`` name, by ``Limit.figure``."""
    found = figures(timeline)
    for limit in limits:
        if not limit.quantity.is_figure and limit.figure not in found:
            measured = _measure_quantity(timeline, limit, found)
            found[limit.figure] = make_figure(limit.figure, limit.unit, measured)
    return found


def _measure_quantity(timeline: Timeline, limit: Limit, found: Mapping[str, Figure]) -> Measured:
    quantity = limit.quantity
    over = _measure_term(timeline, quantity.over, found)
    if quantity.under is None or isinstance(over, Missing):
        return over
    under = _measure_term(timeline, quantity.under, found)
    if isinstance(under, Missing):
        return under
    return over / under if under else Missing(f"{quantity.under.name} is 0")


def _measure_term(timeline: Timeline, term: Term, found: Mapping[str, Figure]) -> Measured:
    if term.metric:
        return measure_metric(timeline, term.metric, term.statistic, term.device)
    figure = found.get(term.name)
    if figure is None:
        return Missing("this recording has no such part")
    if figure.value is None:
        return Missing(f"{term.name}: {figure.reason}", figure.is_applicable)
    return figure.value


def measure_metric(
    timeline: Timeline, metric: str, statistic: str, device: int | None = None
) -> Measured:
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
    if statistic == "peak" and metric in PEAK_REGISTERS:
        register = _on_device(timeline.metric(PEAK_REGISTERS[metric]), device)
        return max(each.series.peak for each in (*known.values(), *register.values()))
    if statistic in ("p95", "median"):
        share = 0.95 if statistic == "p95" else 0.5
        found = [each.inside.percentile(share) for each in known.values() if len(each.inside)]
        return max(found) if found else Missing(NO_STEP_AFTER_WARMUP)
    series = [each.series for each in known.values()]
    if statistic == "min":
        return min(each.floor for each in series)
    return max(each.peak if statistic == "peak" else each.latest for each in series)


def _on_device(
    readings: dict[int, MetricReadings], device: int | None
) -> dict[int, MetricReadings]:
    """Those of one device; what was read without one is of the first."""
    if device is None:
        return readings
    if device in readings:
        return {device: readings[device]}
    return {-1: readings[-1]} if device == 0 and -1 in readings else {}


def _fastest(timeline: Timeline, known: dict[int, MetricReadings]) -> Measured:
    growths = [measure_growth(timeline, each.series) for each in known.values()]
    slopes = [growth.slope for growth in growths if not isinstance(growth, Missing)]
    missing = next((growth for growth in growths if isinstance(growth, Missing)), None)
    return max(slopes) if slopes or missing is None else missing


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
