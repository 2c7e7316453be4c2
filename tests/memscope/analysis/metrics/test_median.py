"""Medians of metrics over repetitions."""

from __future__ import annotations

import pytest

from memscope.analysis.metrics.median import median_metrics
from memscope.analysis.metrics.metric import Metric


def measured(value: float | None, reason: str | None = None, **fields: bool) -> dict[str, Metric]:
    return {"a.b": Metric("a.b", value, "bytes", reason, **fields)}


@pytest.mark.parametrize(
    ("values", "median"), [((3,), 3), ((9, 1, 2), 2), ((1, 2, 4, 9), 3), ((5, 5), 5)]
)
def test_median_of_what_each_has(values: tuple[float, ...], median: float) -> None:
    assert median_metrics([measured(value) for value in values])["a.b"].value == median


def test_one_that_lacks_it_leaves_no_median() -> None:
    metric = median_metrics([measured(1), measured(None, "why", is_applicable=False)])["a.b"]
    assert (metric.value, metric.reason) == (None, "in 1 of 2 repetitions: why")
    assert metric.is_applicable


def test_absent_in_one_is_not_measured() -> None:
    metric = median_metrics([measured(1), {}, measured(2)])["a.b"]
    assert metric.value is None
    assert metric.reason == "in 1 of 3 repetitions: it is not recorded"


def test_missing_in_all_keeps_its_reason() -> None:
    missing = measured(None, "why", is_applicable=False)
    metric = median_metrics([missing, missing])["a.b"]
    assert (metric.reason, metric.is_applicable) == ("why", False)


def test_negligible_only_where_all_are() -> None:
    small, large = measured(1, "too small", is_negligible=True), measured(3)
    assert median_metrics([small, small])["a.b"].is_negligible
    assert not median_metrics([small, large])["a.b"].is_negligible
