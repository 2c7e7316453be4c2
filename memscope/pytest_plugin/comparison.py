"""A test against what a committed baseline has of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memscope.analysis.limits.baseline import Baseline
    from memscope.analysis.limits.limits import Limit
    from memscope.analysis.limits.machine_class import MachineClass
    from memscope.pytest_plugin.marks import Asked
    from memscope.pytest_plugin.options import Settings


@dataclass(frozen=True, slots=True)
class Expectation:
    """Limits from a baseline. ``missing`` says why a test that must have some has none."""

    limits: tuple[Limit, ...] = ()
    warnings: tuple[str, ...] = ()
    missing: str | None = None


class Comparison:
    """The baseline of a session, read when the first test needs it."""

    def __init__(self, settings: Settings) -> None:
        self._path = None if settings.new_baseline else settings.baseline
        self._tolerance = settings.tolerance
        self._baseline: Baseline | None = None

    def open(self, asked: Asked) -> None:
        """Read the file where this test is compared with it. Raises MemscopeError."""
        is_compared = asked.is_marked and asked.baseline is not False
        if self._path is None or self._baseline is not None or not is_compared:
            return
        if not self._path.exists():
            return
        from memscope.analysis.limits.baseline import read_baseline

        self._baseline = read_baseline(self._path)

    def expect(self, test: str, asked: Asked, machine: MachineClass) -> Expectation:
        """What the baseline holds ``test`` to on ``machine``."""
        if self._path is None or not asked.is_marked or asked.baseline is False:
            return Expectation()
        baseline = self._baseline
        if baseline is None or test not in baseline.sections:
            what = f"has nothing of {test}" if baseline else "does not exist"
            next_step = f"write it with --memscope-write-baseline {self._path.name}"
            return Expectation(
                missing=f"{self._path} {what}: {next_step}" if asked.baseline else None
            )
        if machine.kind == "none":  # it used no device: of which class that is does not matter
            machine = replace(baseline.machine, torch=machine.torch)
        found = baseline.limits(test, machine, self._tolerance_of(asked))
        return Expectation(found.limits, found.warnings)

    def _tolerance_of(self, asked: Asked) -> float:
        from memscope.analysis.limits.baseline import DEFAULT_TOLERANCE

        named = (asked.tolerance, self._tolerance)
        return next((each for each in named if each is not None), DEFAULT_TOLERANCE)
