"""The processes of a run on one axis: by step if all ranks have steps, else by the wall clock.

A step is the same moment of the program's work in every rank, whatever the clocks say. A sentence
says how far apart the ranks were by the clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from memscope.analysis.summary.run_summary import Process, RunSummary
from memscope.analysis.timeline.series import Floats, Series
from memscope.analysis.timeline.timeline import Timeline
from memscope.units import format_seconds

STEP, CLOCK = "step", "wall clock"
DEVICE_READINGS = ("nvml.process_bytes", "torch.reserved_bytes")
HOST_READING = "host.rss_bytes"


@dataclass(frozen=True, slots=True)
class Curve:
    """Memory of one process on one device; device −1 is the host.

    ``at``: the number of steps ended, with fractions, or seconds since the first recording began.
    """

    process: Process
    device: int
    at: Floats
    bytes: Floats


@dataclass(frozen=True, slots=True)
class Alignment:
    """Curves on the axis ``by``. ``reading_name`` is the reading of all device curves.

    ``sentence`` says how they are aligned, and how far apart the processes are.
    """

    by: str
    sentence: str
    reading_name: str | None
    device_curves: tuple[Curve, ...]
    host_curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class _Clock:
    """A process's own time on the common axis."""

    process: Process
    timeline: Timeline
    ends_ns: Floats | None  # of its steps, the first one's start before them; None by the clock

    def curve(self, device: int, series: Series) -> Curve:
        if self.ends_ns is None:
            at = series.t_ns / 1e9 + self.process.offset_s
            return Curve(self.process, device, at, series.maximum)
        inside = (series.t_ns >= self.ends_ns[0]) & (series.t_ns <= self.ends_ns[-1])
        at = np.interp(series.t_ns[inside], self.ends_ns, np.arange(len(self.ends_ns)))
        return Curve(self.process, device, at, series.maximum[inside])


def align_run(run: RunSummary, timelines: Sequence[Timeline]) -> Alignment:
    """The curves of a run. ``timelines`` are those of its processes, in the same order."""
    pairs = list(zip(run.processes, timelines, strict=True))
    by_step = not why_by_clock(run, timelines)
    clocks = [
        _Clock(process, timeline, step_bounds(timeline) if by_step else None)
        for process, timeline in pairs
        if not by_step or process.rank is not None
    ]
    reading_name = _common_reading([clock.timeline for clock in clocks])
    return Alignment(
        by=STEP if by_step else CLOCK,
        sentence=_say_steps(clocks, run) if by_step else _say_clock(run, timelines),
        reading_name=reading_name,
        device_curves=tuple(_device_curves(clocks, reading_name)),
        host_curves=tuple(_host_curves(clocks)),
    )


def step_bounds(timeline: Timeline) -> Floats | None:
    """Start of the program's first step, then the end of every step, in ns; None without steps.

    Steps from before the program's own steps were known are not included.
    """
    steps = timeline.steps
    if timeline.are_steps_seconds:
        return None
    own = steps.end_ns > timeline.steps_taken_ns
    if not own.any():
        return None
    first = int(np.flatnonzero(own)[0])
    start = steps.end_ns[first] - max(int(steps.duration_ns[first]), 1)
    bounds = np.concatenate(([start], steps.end_ns[own]))
    return np.maximum.accumulate(bounds).astype(np.float64)


def why_by_clock(run: RunSummary, timelines: Sequence[Timeline]) -> str:
    """Why the processes cannot be aligned by step; empty if they can."""
    for process, timeline in zip(run.processes, timelines, strict=True):
        has_steps = step_bounds(timeline) is not None
        if process.rank is None and (process.device_bytes or has_steps):
            return f"{process.words} has no rank"
        if process.rank is not None and not has_steps:
            return f"{process.words} has no steps of its own"
    ranks = sum(process.rank is not None for process in run.processes)
    return "" if ranks > 1 else "fewer than two processes have a rank"


def _common_reading(timelines: Sequence[Timeline]) -> str | None:
    """The best reading of device memory that all processes with such readings have."""
    found = [
        {reading_name for reading_name in DEVICE_READINGS if timeline.device_series(reading_name)}
        for timeline in timelines
    ]
    shared = [each for each in found if each]
    return next(
        (
            reading_name
            for reading_name in DEVICE_READINGS
            if shared and all(reading_name in each for each in shared)
        ),
        None,
    )


def _device_curves(clocks: Sequence[_Clock], reading_name: str | None) -> Iterator[Curve]:
    for clock in clocks if reading_name else ():
        for device, series in clock.timeline.device_series(str(reading_name)).items():
            if len((curve := clock.curve(max(device, 0), series)).at):
                yield curve


def _host_curves(clocks: Sequence[_Clock]) -> Iterator[Curve]:
    for clock in clocks:
        series = clock.timeline.series.get(HOST_READING)
        if series is not None and len((curve := clock.curve(-1, series)).at):
            yield curve


def _say_steps(clocks: Sequence[_Clock], run: RunSummary) -> str:
    first, *others = [clock for clock in clocks if clock.ends_ns is not None]
    lags = {clock.process.words: _lag_s(first, clock) for clock in others}
    far = max(lags, key=lambda words: abs(lags[words]))
    side = "behind" if lags[far] >= 0 else "ahead of"
    left = len(run.processes) - len(clocks)
    note = f" {left} without a rank is only in the table." if left else ""
    return (
        f"Aligned by step. By the wall clock, {far} ended the same step "
        f"{format_seconds(abs(lags[far]))} {side} {first.process.words} (median; the largest "
        f"difference of all ranks).{note}"
    )


def _lag_s(first: _Clock, other: _Clock) -> float:
    """How much later ``other`` ended the same steps, in s: the median."""
    assert first.ends_ns is not None
    assert other.ends_ns is not None
    count = min(len(first.ends_ns), len(other.ends_ns))
    apart = other.ends_ns[1:count] - first.ends_ns[1:count]
    return float(np.median(apart)) / 1e9 + other.process.offset_s - first.process.offset_s


def _say_clock(run: RunSummary, timelines: Sequence[Timeline]) -> str:
    others = run.processes[1:]
    if not others:
        return "One process. The axis shows seconds since its recording began."
    last = max(others, key=lambda process: abs(process.offset_s))
    side = "after" if last.offset_s >= 0 else "before"
    hosts = {process.summary.header.host for process in run.processes}
    clocks = f". The clocks of {len(hosts)} hosts are assumed to agree" if len(hosts) > 1 else ""
    return (
        f"Aligned by the wall clock, because {why_by_clock(run, timelines)}. {last.words} began "
        f"{format_seconds(abs(last.offset_s))} {side} {run.first.words}{clocks}."
    )
