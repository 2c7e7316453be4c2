"""What lacks a value for one reason alone: no device is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memscope.analysis.limits.limits import Verdict
    from memscope.analysis.metrics.metric import Metric
    from memscope.analysis.summary.summary import Summary


def absent_of_device(summary: Summary) -> tuple[Metric, ...]:
    """The metrics of device memory where no device is recorded and not one of them has a value."""
    from memscope.analysis.metrics.table import find_definition  # slow to import

    found = tuple(
        metric
        for name, metric in summary.metrics.items()
        if (definition := find_definition(name)) is not None and definition.needs_device
    )
    is_none_seen = summary.device is None and not summary.ledgers
    return found if is_none_seen and all(metric.value is None for metric in found) else ()


def absent_defaults(summary: Summary) -> tuple[Verdict, ...]:
    """The default limits on those metrics. One that somebody named is not among them."""
    names = {metric.name for metric in absent_of_device(summary)}
    return tuple(
        verdict for verdict in summary.verdicts if verdict.metric in names and not verdict.is_named
    )


def absent_words(summary: Summary) -> str:
    """How many metrics are absent as no device is recorded; empty where none is for that reason."""
    count = len(absent_of_device(summary))
    return f"no GPU is recorded; {count} metrics of device memory are absent" if count else ""


def unjudged_words(summary: Summary) -> str:
    """The same, and how many default limits are not judged for it."""
    words, count = absent_words(summary), len(absent_defaults(summary))
    limits = "1 default limit is" if count == 1 else f"{count} default limits are"
    return f"{words}, so {limits} not judged" if count else words
