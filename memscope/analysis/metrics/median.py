"""Figures of several recordings of the same thing: the median of each."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from memscope.analysis.metrics.figure import Figure


def median_figures(measured: Sequence[Mapping[str, Figure]]) -> dict[str, Figure]:
    """Every figure of ``measured``; one that a recording does not have is not measured at all.

    So that a value never stands for fewer recordings than were made.
    """
    if len(measured) == 1:
        return dict(measured[0])
    names = dict.fromkeys(name for figures in measured for name in figures)
    return {name: _median([figures.get(name) for figures in measured]) for name in names}


def _median(figures: list[Figure | None]) -> Figure:
    found = [figure for figure in figures if figure is not None]
    values = [figure.value for figure in found if figure.value is not None]
    if len(values) == len(figures):
        is_negligible = all(figure.is_negligible for figure in found)
        reason = found[0].reason if is_negligible else None
        value = statistics.median(values)
        return replace(found[0], value=value, reason=reason, is_negligible=is_negligible)
    missing = [figure for figure in found if figure.value is None]
    reason = missing[0].reason if missing else "nothing of it is recorded"
    count = len(figures) - len(values)
    if values:
        reason = f"in {count} of {len(figures)} repetitions: {reason}"
    is_applicable = bool(values) or any(figure.is_applicable for figure in missing)
    return replace(found[0], value=None, reason=reason, is_applicable=is_applicable)
