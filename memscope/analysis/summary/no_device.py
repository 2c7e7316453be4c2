"""Metrics without a value because no device was recorded: one reason for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memscope.analysis.limits.limits import Verdict
    from memscope.analysis.metrics.metric import Metric
    from memscope.analysis.summary.summary import Summary

NEED_NO_DEVICE = ("host.peak_bytes", "step.duration_ms", "oom.engine_count", "oom.request_rate")


def metrics_without_device(summary: Summary) -> tuple[Metric, ...]:
    """Metrics of device memory, if no device was recorded and none of them has a value."""
    from memscope.analysis.metrics.table import find_definition  # slow to import

    device_metrics = tuple(
        metric
        for name, metric in summary.metrics.items()
        if find_definition(name) is not None and name not in NEED_NO_DEVICE
    )
    if summary.device is not None or summary.ledgers:
        return ()
    return device_metrics if all(metric.value is None for metric in device_metrics) else ()


def defaults_without_device(summary: Summary) -> tuple[Verdict, ...]:
    """The default limits on ``metrics_without_device``. Limits that the user set are not here."""
    names = {metric.name for metric in metrics_without_device(summary)}
    return tuple(
        verdict for verdict in summary.verdicts if verdict.metric in names and not verdict.is_named
    )


def no_device_words(summary: Summary) -> str:
    """How many metrics and default limits need a device. Empty if one was recorded."""
    metrics, limits = len(metrics_without_device(summary)), len(defaults_without_device(summary))
    if not metrics:
        return ""
    words = f"no GPU was recorded: {metrics} metrics of device memory have no value"
    if not limits:
        return words
    judged = "1 default limit is" if limits == 1 else f"{limits} default limits are"
    return f"{words} and {judged} not judged"
