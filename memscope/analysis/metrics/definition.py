"""One row of the table of metrics, and what its value is read from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memscope.analysis.metrics.metric import Highest, Measured, Negligible
from memscope.analysis.metrics.residency import Residency
from memscope.analysis.metrics.weight_pool import WeightPool
from memscope.analysis.timeline.timeline import Timeline

# Where the same program gives the same value again, so that a baseline may hold it.
ON_ANY_MACHINE = "on any machine"  # counted, or a share or size that the program itself sets
ON_ONE_CLASS = "on machines of one class"  # allocator, driver and size of the card have a say
IN_NO_OTHER_RUN = "in no other run"  # time


@dataclass(frozen=True, slots=True)
class Results:
    """What metrics are read from."""

    timeline: Timeline
    residency: Residency
    weight_pool: WeightPool


Measure = Callable[[Results], Measured | Negligible | Highest]


@dataclass(frozen=True, slots=True)
class DefaultLimit:
    """What a metric is held to where nobody said otherwise, in its unit; ``warn`` is tighter."""

    limit: str
    warn: str | None = None


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One row of the table.

    ``moment``: of when the value is; ``is_after_warmup``: whether warm-up is left out. ``applies``:
    to which programs. ``advice``: what to do where a limit is broken. ``direction``: whether
    "lower" or "higher" is better, or neither. ``repeats``: where a baseline of it holds, within
    ``slack`` (in its unit) at least. ``is_of_process``: whether what ran before in the process
    counts in it, so that a test's baseline has it where a limit names it alone.
    """

    name: str
    unit: str
    definition: str
    measure: Measure
    moment: str
    applies: str
    limits: tuple[DefaultLimit, ...] = ()
    advice: str = ""
    direction: str = ""
    repeats: str = ON_ANY_MACHINE
    slack: float = 0.0
    is_after_warmup: bool = False
    is_of_process: bool = False

    @property
    def area(self) -> str:
        """What stands before the dot."""
        return self.name.partition(".")[0]
