"""The value of the fixture ``memscope_measurement``: metrics of the test's body so far."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memscope.errors import MemscopeError

if TYPE_CHECKING:
    from memscope.analysis.metrics.metric import Metric
    from memscope.pytest_plugin.measurement import Measurement


class BodyMetrics:
    """Metrics by name, each computed from what the test's body has recorded so far."""

    def __init__(self, measurement: Measurement, *, is_strict: bool) -> None:
        self._measurement = measurement
        self._is_strict = is_strict

    def __getitem__(self, name: str) -> float:
        """The value of a metric, a reading or a ratio, in its unit.

        If it could not be measured, the test is skipped with the reason, or fails with
        ``--memscope-strict``: no assertion compares with None. Raises MemscopeError for an unknown
        name.
        """
        metric = self.metric(name)
        if metric.value is not None:
            return metric.value
        word = "not measured" if metric.is_applicable else "not applicable"
        reason = f"memscope: {name}: {word}, {(metric.reason or '').rstrip('. ')}"
        if self._is_strict:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    def metric(self, name: str) -> Metric:
        """The metric with its unit; its ``value`` may be None, with a ``reason``.

        Raises MemscopeError for an unknown name.
        """
        from memscope.analysis.limits.limits import parse_limit

        limit = parse_limit(f"{name} >= 0")
        try:
            metrics = self._measurement.metrics_now(limit)
        except MemscopeError as error:
            return _unmeasured(limit.metric, limit.unit, str(error))
        return metrics.get(limit.metric) or _unmeasured(
            limit.metric, limit.unit, "this recording has no such part"
        )

    @property
    def path(self) -> Path | None:
        """The recording of this run of the body, or None if none could be opened."""
        return self._measurement.path


def _unmeasured(name: str, unit: str, reason: str) -> Metric:
    from memscope.analysis.metrics.metric import Metric

    return Metric(name, None, unit, reason)
