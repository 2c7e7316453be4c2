"""The median of each metric over several recordings of the same program."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from memscope.analysis.metrics.metric import Metric


def median_metrics(measured: Sequence[Mapping[str, Metric]]) -> dict[str, Metric]:
    """The median of each metric. It has no value if one of the recordings does not have it.

    So every value stands for all recordings.
    """
    if len(measured) == 1:
        return dict(measured[0])
    names = dict.fromkeys(name for metrics in measured for name in metrics)
    return {name: _median([metrics.get(name) for metrics in measured]) for name in names}


def _median(metrics: list[Metric | None]) -> Metric:
    known = [metric for metric in metrics if metric is not None]
    values = [metric.value for metric in known if metric.value is not None]
    if len(values) == len(metrics):
        is_negligible = all(metric.is_negligible for metric in known)
        reason = known[0].reason if is_negligible else None
        value = statistics.median(values)
        return replace(known[0], value=value, reason=reason, is_negligible=is_negligible)
    missing = [metric for metric in known if metric.value is None]
    reason = missing[0].reason if missing else "it is not recorded"
    count = len(metrics) - len(values)
    if values:
        reason = f"in {count} of {len(metrics)} repetitions: {reason}"
    is_applicable = bool(values) or any(metric.is_applicable for metric in missing)
    return replace(known[0], value=None, reason=reason, is_applicable=is_applicable)
