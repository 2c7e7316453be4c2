"""The committed baseline of a session: which limits it gives each test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memscope.analysis.limits.baseline import Baseline
    from memscope.analysis.limits.limits import Limit
    from memscope.analysis.limits.machine_class import MachineClass
    from memscope.pytest_plugin.marks import ItemSettings
    from memscope.pytest_plugin.options import Settings


@dataclass(frozen=True, slots=True)
class Expectation:
    """The limits of one test from the baseline.

    ``missing`` says why there are none although the test demands them (``baseline=True``).
    """

    limits: tuple[Limit, ...] = ()
    warnings: tuple[str, ...] = ()
    missing: str | None = None


class SessionBaseline:
    """The baseline file, read when the first test needs it."""

    def __init__(self, settings: Settings) -> None:
        self._path = None if settings.new_baseline else settings.baseline
        self._tolerance = settings.tolerance
        self._baseline: Baseline | None = None

    def open(self, settings: ItemSettings) -> None:
        """Read the file if this test is compared with it. Raises MemscopeError."""
        is_compared = settings.is_marked and settings.baseline is not False
        if self._path is None or self._baseline is not None or not is_compared:
            return
        if not self._path.exists():
            return
        from memscope.analysis.limits.baseline import read_baseline

        self._baseline = read_baseline(self._path)

    def expect(self, test: str, settings: ItemSettings, machine: MachineClass) -> Expectation:
        """The limits that the baseline gives ``test`` on ``machine``."""
        if self._path is None or not settings.is_marked or settings.baseline is False:
            return Expectation()
        baseline = self._baseline
        if baseline is None or test not in baseline.sections:
            problem = f"has no entry for {test}" if baseline else "does not exist"
            next_step = f"write one with --memscope-write-baseline {self._path.name}"
            return Expectation(
                missing=f"{self._path} {problem}: {next_step}" if settings.baseline else None
            )
        if (
            machine.kind == "none"
        ):  # it used no device, so that the class of the device does not matter
            machine = replace(baseline.machine, torch=machine.torch)
        expected = baseline.limits(test, machine, self._tolerance_of(settings))
        return Expectation(expected.limits, expected.warnings)

    def _tolerance_of(self, settings: ItemSettings) -> float:
        from memscope.analysis.limits.baseline import DEFAULT_TOLERANCE

        named = (settings.tolerance, self._tolerance)
        return next((each for each in named if each is not None), DEFAULT_TOLERANCE)
