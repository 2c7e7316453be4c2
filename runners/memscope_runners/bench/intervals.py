"""Medians with confidence intervals, for noisy machines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Median:
    """A median and its 95 % confidence interval; no distribution is assumed."""

    value: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.value:.4f} (95 %: {self.low:.4f} to {self.high:.4f}, n = {self.count})"


def median_with_interval(values: Sequence[float]) -> Median:
    """The median, and the order statistics that enclose it with 95 % confidence.

    The ranks are those of the binomial distribution in its normal approximation,
    n/2 ± 1.96 √n / 2 (Conover, Practical Nonparametric Statistics, 3.2).
    """
    ordered = sorted(values)
    count = len(ordered)
    half = 1.96 * math.sqrt(count) / 2
    low = max(math.floor(count / 2 - half), 0)
    high = min(math.ceil(count / 2 + half), count - 1)
    return Median(statistics.median(ordered), ordered[low], ordered[high], count)
