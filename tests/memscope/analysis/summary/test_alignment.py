"""Processes on one axis: by step where every rank has steps, else by the clock, and it is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memscope.analysis.summary.alignment import Alignment, align_run
from memscope.analysis.summary.run_summary import RunSummary, summarize_run
from memscope.analysis.summary.summary import summarize
from memscope.analysis.timeline.timeline import Timeline
from memscope.events import Kind
from tests.memscope.analysis.build import HEADER, Event, event, fact, make_batch, state
from tests.memscope.analysis.torch_runs import GIB, GPU, MIB, sample

S = 1_000_000_000


def steps(source: str, ends_s: tuple[float, ...]) -> list[Event]:
    """A second, then steps of half a second each that end at these times."""
    rows = [event(Kind.STEP, S, step=0, duration_ns=S), fact("run.step_source", source)]
    rows[1]["t_ns"] = S + 1
    for number, end in enumerate(ends_s, 1):
        rows.append(event(Kind.STEP, int(end * S), step=number, duration_ns=S // 2))
    return rows


def rank(number: int | None, start_s: float, *rows: Event, pid: int = 0) -> Timeline:
    header = replace(HEADER, pid=pid or 100 + (number or 0), rank=number)
    timeline = Timeline(replace(header, started_at_ns=int(start_s * S)))
    timeline.add(make_batch([GPU, *rows] if rows else [fact("versions", {})]))
    return timeline


def run_of(*timelines: Timeline) -> tuple[RunSummary, Alignment]:
    run = summarize_run([("x.mscope", summarize(each, state())) for each in timelines])
    return run, align_run(run, timelines)


def held(*readings: tuple[float, int], reading_name: str = "nvml.process_bytes") -> list[Event]:
    return [sample(reading_name, int(at * S), size) for at, size in readings]


def test_ranks_are_aligned_by_step_and_their_lag_is_said() -> None:
    launcher = rank(None, 0, pid=9)
    first = rank(0, 1, *steps("optimizer", (2, 3, 4)), *held((2.5, GIB), (9, 5 * GIB)))
    second = rank(1, 1.25, *steps("optimizer", (4, 5, 6)), *held((4.5, 2 * GIB)))
    _, aligned = run_of(launcher, first, second)
    assert aligned.by == "step"
    assert [curve.at.tolist() for curve in aligned.device_curves] == [[1.5], [1.5]]
    assert "rank 1 (101) ended the same step 2.25 s behind rank 0 (100)" in aligned.sentence
    assert "1 without a rank is only in the table" in aligned.sentence


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([rank(1, 2.5, *steps("second", ()), *held((1, GIB)))], "rank 1 (101) has no steps"),
        ([rank(None, 2.5, *held((1, GIB)), pid=7)], "process 7 has no rank"),
        ([], "fewer than two processes have a rank"),
    ],
)
def test_else_the_clock_aligns_and_the_offset_is_said(others: list[Timeline], why: str) -> None:
    first = rank(0, 2, *steps("program", (2, 3)), *held((1, GIB)))
    late = rank(None, 3.5, pid=8)
    _, aligned = run_of(first, *others, late)
    assert aligned.by == "wall clock"
    assert why in aligned.sentence
    assert "process 8 began 1.50 s after rank 0 (100)" in aligned.sentence
    offsets = [curve.at[0] for curve in aligned.device_curves]
    assert offsets == [1.0, *([1.5] if others else [])]


def test_one_reading_for_all_and_a_curve_a_device() -> None:
    both = [*held((1, GIB)), *held((1, MIB), reading_name="torch.reserved_bytes")]
    other = held((1, 3 * MIB), reading_name="torch.reserved_bytes")
    other.append(other[0] | {"device": 1, "bytes": 5 * MIB})
    _, aligned = run_of(rank(None, 0, *both, pid=5), rank(None, 0, *other, pid=6))
    assert aligned.reading_name == "torch.reserved_bytes"
    found = [(each.process.pid, each.device, each.bytes[0]) for each in aligned.device_curves]
    assert found == [(5, 0, MIB), (6, 0, 3 * MIB), (6, 1, 5 * MIB)]


def test_what_nobody_read_has_no_curve() -> None:
    run, aligned = run_of(rank(None, 0, pid=1), rank(None, 1, pid=2))
    assert (aligned.reading_name, aligned.device_curves, aligned.host_curves) == (None, (), ())
    assert run.sentence == "No process of this run held GPU memory, as far as was measured."


def test_peaks_of_devices_add_up_and_ranks_that_hold_alike_are_not_singled_out() -> None:
    two = held((1, GIB), (2, GIB // 2))
    two.append(two[0] | {"device": 1, "bytes": GIB})
    run, _ = run_of(rank(0, 0, *two), rank(1, 0, *held((1, 2 * GIB + MIB))))
    assert run.processes[0].device_bytes == 2 * GIB
    assert run.sentence is not None
    assert run.sentence.startswith("2 processes held about the same: 2.00 GiB each")


def test_clock_that_runs_backwards_places_no_reading_twice() -> None:
    first = rank(0, 0, *steps("program", (3, 2, 4)), *held((2.5, GIB)))
    second = rank(1, -1, *steps("program", (3, 4)), *held((3.5, GIB)))
    _, aligned = run_of(first, second)
    assert aligned.by == "step"
    assert all(np.isfinite(curve.at).all() for curve in aligned.device_curves)
