"""Percentiles out of buckets, against those of all readings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memscope.analysis.timeline.sketch import MAX_BUCKETS, RELATIVE_ERROR, Sketch


def sketch(values: list[float] | np.ndarray, portion: int = 0) -> Sketch:
    found, values = Sketch(), np.asarray(values, dtype=np.float64)
    for start in range(0, len(values), portion or len(values)):
        found.add(values[start : start + (portion or len(values))])
    return found


def exact(values: np.ndarray, share: float) -> float:
    return float(np.sort(values)[max(math.ceil(share * len(values)), 1) - 1])


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e10])
def test_a_percentile_is_at_most_a_little_too_high(share: float, scale: float) -> None:
    values = np.random.default_rng(0).lognormal(0, 0.9, 20_000) * scale
    found, right = sketch(values).percentile(share), exact(values, share)
    assert right <= found <= right * (1 + RELATIVE_ERROR), (found / right - 1, share)
    assert found in values


def test_a_few_different_readings_are_exact() -> None:
    values = np.array([3.0, 1.0, 2.0, 2.0, -5.0, 0.0, 2.0, 9.0, -5.1, 7.0])
    for share in (0.1, 0.2, 0.3, 0.5, 0.9, 0.95, 1.0):
        assert sketch(values).percentile(share) == exact(values, share)


@given(st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=60), st.integers(1, 60))
def test_portions_and_order_do_not_matter(values: list[float], portion: int) -> None:
    whole, parts = sketch(values), sketch(values[::-1], portion)
    for share in (0.05, 0.5, 0.95):
        assert whole.percentile(share) == parts.percentile(share)
    assert len(whole) == len(values)


def test_memory_is_bounded_and_the_high_end_stays_right() -> None:
    values = np.exp(np.random.default_rng(1).uniform(-25, 40, 50_000))
    found = sketch(values, 1000)
    assert len(found._keys) <= MAX_BUCKETS
    assert len(found) == len(values)
    right = exact(values, 0.95)
    assert right <= found.percentile(0.95) <= right * (1 + RELATIVE_ERROR)
    assert found.percentile(0.95) == sketch(values).percentile(0.95)
