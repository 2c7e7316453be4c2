"""Thinned readings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memscope.analysis.timeline.series import MAX_POINTS, SeriesBuilder


def build(values: np.ndarray, portion: int) -> SeriesBuilder:
    builder = SeriesBuilder()
    for start in range(0, len(values), portion):
        part = values[start : start + portion]
        builder.add(np.arange(start, start + len(part)), part)
    return builder


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9000), st.integers(1, 5000))
def test_portions_do_not_matter(count: int, portion: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    whole, parts = build(values, count).series(), build(values, max(portion, count // 20)).series()
    for name in ("t_ns", "minimum", "maximum", "last"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name)), name
    assert whole.readings == parts.readings == count


@pytest.mark.parametrize("count", [1, MAX_POINTS, MAX_POINTS + 1, 20_000])
def test_a_series_stays_small_and_its_extremes_exact(count: int) -> None:
    values = np.zeros(count)
    values[count // 2], values[-1] = 9.0, -3.0
    series = build(values, 777).series()
    assert len(series) <= MAX_POINTS
    assert (series.peak, series.floor) == (values.max(), -3.0)
    assert series.latest == -3.0
    assert series.t_ns[-1] == count - 1
