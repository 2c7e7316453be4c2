"""A row of the table of metrics, and the results that a metric is computed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memscope.analysis.metrics.metric import DeviceValue, Measured, Negligible
from memscope.analysis.metrics.residency import Residency
from memscope.analysis.metrics.weight_pool import WeightPool
from memscope.analysis.timeline.timeline import Timeline

# Other runs of the program that give the same value, so a baseline makes sense.
ON_ANY_MACHINE = "on any machine"  # counts, and shares or sizes that the program sets
ON_ONE_CLASS = "on machines of one class"  # depends on allocator, driver and GPU size
IN_NO_OTHER_RUN = "in no other run"  # times


@dataclass(frozen=True, slots=True)
class Results:
    """What a metric is computed from."""

    timeline: Timeline
    residency: Residency
    weight_pool: WeightPool


Measure = Callable[[Results], Measured | Negligible | DeviceValue]


@dataclass(frozen=True, slots=True)
class DefaultLimit:
    """The limit of a metric if nobody sets another, in the metric's unit. ``warn`` is tighter."""

    limit: str
    warn: str | None = None


@dataclass(frozen=True, slots=True)
class LiveCell:
    """A metric's cell in the live view: its short label and its position, counted from 1.

    ``window`` is the position for programs with a residency window, ``program`` for all others.
    0 means not shown.
    """

    label: str
    window: int = 0
    program: int = 0


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A row of the table: all that defines a metric.

    ``moment``: the moment or readings that the value is taken from. ``is_after_warmup``:
    warm-up steps are left out. ``applies``: the programs that can have it. ``advice``: what to
    do if a limit is broken. ``direction``: "lower" or "higher" is better, or "". ``repeats``:
    which other runs give the same value, within ``slack`` (in its unit). ``is_of_process``:
    earlier work of the process changes the value, so a test has a baseline of it only if a
    limit names it. ``needs_device``: it has a value only if a device is recorded. ``overview``:
    label of its tile at the top of a report, "" for no tile. ``live``: its cell in the live
    view.
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
        """The part of the name before the dot."""
        return self.name.partition(".")[0]
