"""What lacks a value for one reason alone: no device is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memscope.analysis.figure import Figure
    from memscope.analysis.summary import Summary

OF_NO_DEVICE = ("host.peak_bytes", "step.duration_ms", "oom.engine_count", "oom.request_rate")


def absent_of_device(summary: Summary) -> tuple[Figure, ...]:
    """The figures of device memory where no device is recorded and not one of them has a value."""
    from memscope.analysis.figures import find_definition  # slow to import

    found = tuple(
        figure
        for name, figure in summary.figures.items()
        if find_definition(name) is not None and name not in OF_NO_DEVICE
    )
    is_none_seen = summary.device is None and not summary.ledgers
    return found if is_none_seen and all(figure.value is None for figure in found) else ()
