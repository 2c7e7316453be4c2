"""What the fixture ``memscope_measurement`` gives: metrics of the test's body until now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memscope.errors import MemscopeError

if TYPE_CHECKING:
    from memscope.analysis.metrics.metric import Metric
    from memscope.pytest_plugin.measurement import Measurement


class MeasuredBody:
    """Metrics by name; each is read anew from what the test's body has recorded until then."""

    def __init__(self, measurement: Measurement, *, is_strict: bool) -> None:
        self._measurement = measurement
        self._is_strict = is_strict

    def __getitem__(self, name: str) -> float:
        """The value of a metric, a reading or a ratio, in its unit.

        One that could not be measured skips the test with the reason, or fails it where asked to
        be strict: an assertion never compares with nothing. Raises MemscopeError for a name that
        there is not.
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
        """The metric itself: without a value it has a reason. Raises MemscopeError."""
        from memscope.analysis.limits.limits import parse_limit

        limit = parse_limit(f"{name} >= 0")
        try:
            found = self._measurement.metrics_now(limit)
        except MemscopeError as error:
            return _unmeasured(limit.metric, limit.unit, str(error))
        return found.get(limit.metric) or _unmeasured(
            limit.metric, limit.unit, "this recording has no such part"
        )

    @property
    def path(self) -> Path | None:
        """The recording of this run of the body; None where none could be opened."""
        return self._measurement.path


def _unmeasured(name: str, unit: str, reason: str) -> Metric:
    from memscope.analysis.metrics.metric import Metric

    return Metric(name, None, unit, reason)
