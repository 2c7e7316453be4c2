"""What lacks a value for one reason alone: no device is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memscope.analysis.limits.limits import Verdict
    from memscope.analysis.metrics.figure import Figure
    from memscope.analysis.summary.summary import Summary

OF_NO_DEVICE = ("host.peak_bytes", "step.duration_ms", "oom.engine_count", "oom.request_rate")


def absent_of_device(summary: Summary) -> tuple[Figure, ...]:
    """The figures of device memory where no device is recorded and not one of them has a value."""
    from memscope.analysis.metrics.figures import find_definition  # slow to import

    found = tuple(
        figure
        for name, figure in summary.figures.items()
        if find_definition(name) is not None and name not in OF_NO_DEVICE
    )
    is_none_seen = summary.device is None and not summary.ledgers
    return found if is_none_seen and all(figure.value is None for figure in found) else ()


def absent_defaults(summary: Summary) -> tuple[Verdict, ...]:
    """The default limits on those figures. One that somebody named is not among them."""
    names = {figure.name for figure in absent_of_device(summary)}
    return tuple(
        verdict for verdict in summary.verdicts if verdict.figure in names and not verdict.is_named
    )


def absent_words(summary: Summary) -> str:
    """How many figures are absent as no device is recorded; empty where none is for that reason."""
    count = len(absent_of_device(summary))
    return f"no GPU is recorded; {count} figures of device memory are absent" if count else ""


def unjudged_words(summary: Summary) -> str:
    """The same, and how many default limits are not judged for it."""
    words, count = absent_words(summary), len(absent_defaults(summary))
    limits = "1 default limit is" if count == 1 else f"{count} default limits are"
    return f"{words}, so {limits} not judged" if count else words
