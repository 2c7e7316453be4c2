"""Growth from step to step: the slope of the floors, so temporary memory does not count."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from memscope.analysis.limits.value_parsing import per_second
from memscope.analysis.metrics.memory import find_device, find_devices
from memscope.analysis.metrics.metric import DeviceValue, Missing, Negligible, lowest_of
from memscope.analysis.timeline.series import Series
from memscope.analysis.timeline.timeline import Timeline
from memscope.units import format_seconds

MAX_FLOORS = 300
LEAST_FLOORS = 8
POINTS_A_FLOOR = 4
RISING = 0.75
SMALL_BYTES = 1024.0  # a step
SMALL_SHARE = 0.005  # of the level, over the run

Floats = npt.NDArray[np.float64]

KINDS = {"allocated": "floor", "reserved_gap": "gap", "outside": "outside"}


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth in bytes per step over ``steps`` steps; seconds count as steps if there are none.

    ``rising``: share of all pairs of floors that rise. ``level_bytes``: the median floor.
    """

    slope: float
    steps: float
    floors: int
    rising: float
    level_bytes: float

    @property
    def rise_bytes(self) -> float:
        """Total growth over the run."""
        return self.slope * self.steps

    @property
    def share(self) -> float:
        """Total growth over the run, as a share of the level."""
        return self.rise_bytes / max(self.level_bytes, 1.0)

    @property
    def is_large(self) -> bool:
        """Whether the growth is large enough to matter."""
        return self.slope > SMALL_BYTES and self.share > SMALL_SHARE

    @property
    def is_notable(self) -> bool:
        """Whether the growth is large and steady enough to report in a sentence."""
        return self.is_large and self.rising >= RISING


def analyse_growth(timeline: Timeline, kind: str) -> dict[int, Growth]:
    """Device → growth of "allocated" (without known KV), "reserved_gap" or "outside".

    Theil–Sen (Sen 1968): the median slope of all pairs of floors. A floor is the lowest reading
    of one of at most ``MAX_FLOORS`` windows after warm-up. Devices without enough readings are
    left out.
    """
    return {
        device: growth
        for device, counters in timeline.counters.items()
        if (series := getattr(counters, KINDS[kind])) is not None
        and not isinstance(growth := measure_growth(timeline, series), Missing)
    }


def fastest_growth(timeline: Timeline, kind: str) -> tuple[int, Growth] | None:
    """The device with the fastest growth; large growth goes first. None if none is measured."""
    found = analyse_growth(timeline, kind).items()
    return max(found, key=lambda each: (each[1].is_large, each[1].slope), default=None)


def growth_slope(timeline: Timeline, kind: str) -> DeviceValue | Missing | Negligible:
    """The growth metric, in bytes per step. Negligible if it is a small share of the level."""
    fastest = fastest_growth(timeline, kind)
    if fastest is None:
        return _missing(timeline, kind)
    device, growth = fastest
    slope = DeviceValue(growth.slope, device, len(timeline.counters))
    if growth.slope > SMALL_BYTES and not growth.is_large:
        return Negligible(slope, f"too small to matter: {growth.share:.2%} over the run")
    return slope


def unit_measured(timeline: Timeline, unit: str) -> str:
    """``unit`` per second instead of per step, if the program shows no steps."""
    has_steps = len(timeline.steps) > 0 and not timeline.are_steps_seconds
    return unit if has_steps else per_second(unit)


def measure_growth(timeline: Timeline, series: Series) -> Growth | Missing:
    """Growth of one series after warm-up, or why there are too few readings for it."""
    x, y = _after_warmup(timeline, series)
    at, floor = take_floors(x, y)
    if len(floor) < LEAST_FLOORS:
        return _too_few(timeline, series, len(x), len(floor))
    slope, rising = theil_sen(at, floor)
    level = float(np.median(floor))
    return Growth(slope, float(at[-1] - at[0]), len(floor), rising, level)


def _too_few(timeline: Timeline, series: Series, readings: int, floors: int) -> Missing:
    if readings >= LEAST_FLOORS:
        return Missing(
            f"growth needs readings from {LEAST_FLOORS} parts of the run after warm-up, and there "
            f"are readings from {max(floors, 1)}: run longer, or for more steps"
        )
    gaps_ns = np.diff(series.t_ns)
    taking_s = LEAST_FLOORS * float(np.median(gaps_ns)) / 1e9 if len(gaps_ns) else 0.0
    pace = f" (about {format_seconds(taking_s)} at this rate)" if taking_s >= 0.1 else ""
    return Missing(
        f"growth needs {LEAST_FLOORS} readings after warm-up{pace}, and there are {readings}: run "
        f"longer, or record a sample of your own in each of {LEAST_FLOORS + timeline.warmup_steps} "
        "steps"
    )


def take_floors(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The lowest point of each window. All windows have the same width in ``x``."""
    if len(x) < LEAST_FLOORS or x[-1] <= x[0]:
        return x[:0], y[:0]
    windows = min(max(len(x) // POINTS_A_FLOOR, LEAST_FLOORS), MAX_FLOORS)
    window = np.minimum((x - x[0]) / (x[-1] - x[0]) * windows, windows - 1).astype(np.int64)
    order = np.lexsort((y, window))
    first = np.flatnonzero(np.diff(window[order], prepend=-1))
    lowest = order[first]
    return x[lowest], y[lowest]


def theil_sen(x: Floats, y: Floats) -> tuple[float, float]:
    """The median slope of all pairs, and the share of pairs that rise. ``x`` must be sorted."""
    first, second = np.triu_indices(len(x), k=1)
    run, rise = x[second] - x[first], y[second] - y[first]
    is_apart = run > 0
    slopes = rise[is_apart] / run[is_apart]
    if not len(slopes):
        return 0.0, 0.0
    return float(np.median(slopes)), float((slopes > 0).mean())


def time_until_full(timeline: Timeline) -> DeviceValue | Missing:
    """Seconds until the first device is full: free bytes / all its growth together."""
    growths = [each for kind in KINDS for each in analyse_growth(timeline, kind).items()]
    if not growths:
        return Missing("no growth is measured")
    slopes: dict[int, float] = {}
    for device, growth in growths:
        if growth.is_notable:
            slopes[device] = slopes.get(device, 0.0) + growth.slope
    if not slopes:
        return Missing("nothing grows", False)
    seconds = {
        device: free / slope * _step_seconds(timeline)
        for device, slope in slopes.items()
        if (free := _free_bytes(timeline, device)) is not None
    }
    if not seconds:
        return Missing("the device's free bytes are not recorded")
    return replace(lowest_of(seconds), devices=len(timeline.counters))


def _after_warmup(timeline: Timeline, series: Series) -> tuple[Floats, Floats]:
    """Step (or second) and lowest bytes of each point after warm-up."""
    steps = timeline.steps
    if not len(steps):
        x = series.t_ns / 1e9
        is_measured = x >= min(1.0, x[-1] / 10)
        return x[is_measured], series.minimum[is_measured]
    x = np.searchsorted(steps.end_ns, series.t_ns).astype(np.float64)
    is_measured = (x >= timeline.warmup_steps) & (x < len(steps))
    return x[is_measured], series.minimum[is_measured]


def _step_seconds(timeline: Timeline) -> float:
    ends = timeline.steps.end_ns
    if len(ends) < 2:
        return 1.0
    return float(ends[-1] - ends[0]) / (len(ends) - 1) / 1e9


def _free_bytes(timeline: Timeline, index: int) -> float | None:
    free = timeline.latest("nvml.free_bytes", index)
    if free is not None:
        return free.value
    device = find_devices(timeline).get(index)
    reserved = timeline.latest("torch.reserved_bytes", index)
    if device is None or device.usable_bytes is None or reserved is None:
        return None
    return max(device.usable_bytes - reserved.value, 0.0)


def _missing(timeline: Timeline, kind: str) -> Missing:
    device = find_device(timeline)
    if device is not None and device.is_host:
        return Missing("torch's caching allocator serves GPUs, and this is a host device", False)
    for counters in timeline.counters.values():
        series = getattr(counters, KINDS[kind])
        if series is not None:
            measured = measure_growth(timeline, series)
            assert isinstance(measured, Missing)
            return measured
    if kind == "outside":
        return Missing("the driver's reading of this process is not recorded")
    return Missing("torch's allocator counters are not recorded")
