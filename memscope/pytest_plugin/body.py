"""What the fixture ``memscope_measurement`` gives: figures of the test's body until now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memscope.errors import MemscopeError

if TYPE_CHECKING:
    from memscope.analysis.metrics.figure import Figure
    from memscope.pytest_plugin.measurement import Measurement


class MeasuredBody:
    """Figures by name; each is read anew from what the test's body has recorded until then."""

    def __init__(self, measurement: Measurement, *, is_strict: bool) -> None:
        self._measurement = measurement
        self._is_strict = is_strict

    def __getitem__(self, name: str) -> float:
        """The value of a figure, a metric or a ratio, in its unit.

        One that could not be measured skips the test with the reason, or fails it where asked to
        be strict: an assertion never compares with nothing. Raises MemscopeError for a name that
        there is not.
        """
        figure = self.figure(name)
        if figure.value is not None:
            return figure.value
        word = "not measured" if figure.is_applicable else "not applicable"
        reason = f"memscope: {name}: {word}, {(figure.reason or '').rstrip('. ')}"
        if self._is_strict:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    def figure(self, name: str) -> Figure:
        """The figure itself: without a value it has a reason. Raises MemscopeError."""
        from memscope.analysis.limits.limits import parse_limit

        limit = parse_limit(f"{name} >= 0")
        try:
            found = self._measurement.figures_now(limit)
        except MemscopeError as error:
            return _unmeasured(limit.figure, limit.unit, str(error))
        return found.get(limit.figure) or _unmeasured(
            limit.figure, limit.unit, "this recording has no such part"
        )

    @property
    def path(self) -> Path | None:
        """The recording of this run of the body; None where none could be opened."""
        return self._measurement.path


def _unmeasured(name: str, unit: str, reason: str) -> Figure:
    from memscope.analysis.metrics.figure import Figure

    return Figure(name, None, unit, reason)
