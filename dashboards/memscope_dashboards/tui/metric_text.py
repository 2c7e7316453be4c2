"""Metrics of a snapshot as text, formatted the same way everywhere."""

from __future__ import annotations

from memscope.analysis.limits.limits import Outcome
from memscope.analysis.metrics.metric import Metric
from memscope.units import format_value
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.palette import Role
from memscope_dashboards.tui.styled_line import Span


def find_metric(snapshot: Snapshot, name: str) -> Metric | None:
    """The metric ``name``; None if there is no summary or it lacks the metric."""
    return snapshot.summary.metrics.get(name) if snapshot.summary is not None else None


def metric_value(snapshot: Snapshot, name: str) -> float | None:
    """The value of the metric ``name``; None if it was not measured."""
    metric = find_metric(snapshot, name)
    return metric.value if metric is not None else None


def metric_text(metric: Metric) -> str:
    """Value and unit, or "not measured" or "not applicable"."""
    if metric.value is not None:
        return format_value(metric.value, metric.unit)
    return str(Outcome.NOT_MEASURED if metric.is_applicable else Outcome.NOT_APPLICABLE)


def metric_span(snapshot: Snapshot, name: str, role: Role = Role.TEXT) -> Span:
    """``metric_text`` of the metric ``name``, dim if it has no value."""
    metric = find_metric(snapshot, name)
    if metric is None or metric.value is None:
        return (metric_text(metric) if metric is not None else str(Outcome.NOT_MEASURED), Role.DIM)
    return (metric_text(metric), role)


def can_exist(snapshot: Snapshot, name: str) -> bool:
    """Whether the metric ``name`` has a value or could have one.

    Before the first step has ended, any metric of a residency window may still get a value.
    """
    metric = find_metric(snapshot, name)
    has_steps = snapshot.steps is not None and len(snapshot.steps) > 0
    is_open = snapshot.program.has_window and not has_steps
    return metric is None or metric.is_applicable or is_open


def has_device(snapshot: Snapshot) -> bool:
    """Whether anything is known about a device yet."""
    return snapshot.summary is not None and bool(snapshot.summary.ledgers)
