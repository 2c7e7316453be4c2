"""One row of the table of metrics, and what its value is read from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memscope.analysis.metrics.metric import DeviceValue, Measured, Negligible
from memscope.analysis.metrics.residency import Residency
from memscope.analysis.metrics.weight_pool import WeightPool
from memscope.analysis.timeline.timeline import Timeline

# Where the same program gives the same value again, so that a baseline makes sense.
ON_ANY_MACHINE = "on any machine"  # counted, or a share or size that the program itself sets
ON_ONE_CLASS = "on machines of one class"  # allocator, driver and size of the card have a say
IN_NO_OTHER_RUN = "in no other run"  # time


@dataclass(frozen=True, slots=True)
class Results:
    """What metrics are read from."""

    timeline: Timeline
    residency: Residency
    weight_pool: WeightPool


Measure = Callable[[Results], Measured | Negligible | DeviceValue]


@dataclass(frozen=True, slots=True)
class DefaultLimit:
    """The limit of a metric if nobody sets another, in its unit. ``warn`` is tighter."""

    limit: str
    warn: str | None = None


@dataclass(frozen=True, slots=True)
class LiveCell:
    """A metric's cell in the live view: its short name, and its place among the others, from 1.

    ``window``: in programs with a residency window; ``program``: in all others. 0: not shown there.
    """

    label: str
    window: int = 0
    program: int = 0


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One row of the table: everything about a metric that is not its function.

    ``moment``: which moment or readings the value is taken from. ``is_after_warmup``: whether
    warm-up steps are left out. ``applies``: to which programs. ``advice``: what to do if a limit is
    broken. ``direction``: "lower" or "higher" is better, or "". ``repeats``: where a baseline
    of it holds, at least within ``slack`` (in its unit). ``is_of_process``: whether earlier work of
    the process counts in it, so that a test has no baseline of it unless a limit names it alone.
    ``needs_device``: whether it can have a value only if a device is recorded. ``overview``: words
    of its tile at the top of a report, "" for no tile. ``live``: its cell in the live view.
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
    needs_device: bool = True
    overview: str = ""
    live: LiveCell | None = None

    @property
    def area(self) -> str:
        """What stands before the dot."""
        return self.name.partition(".")[0]
