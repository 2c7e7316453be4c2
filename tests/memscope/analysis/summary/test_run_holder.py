"""Which process of a run to look at first: one choice, by what it is and then by what it held."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memscope.analysis.summary import run_summary
from memscope.analysis.summary.run_summary import Process, RunSummary, summarize_run
from memscope.analysis.summary.summary import summarize
from memscope.analysis.timeline.timeline import Timeline
from memscope.events import Kind
from tests.memscope.analysis.build import HEADER, Event, event, fact, make_batch, state
from tests.memscope.analysis.torch_runs import GIB, GPU, sample

S = 1_000_000_000


def run_of(*parts: tuple[int | None, list[Event]]) -> RunSummary:
    """A run of processes 100, 101 ..., each of its rank and rows."""
    summaries = []
    for pid, (rank, rows) in enumerate(parts, 100):
        timeline = Timeline(replace(HEADER, pid=pid, rank=rank))
        timeline.add(make_batch([fact("versions", {}), *rows]))
        summaries.append((f"run.{pid}.mscope", summarize(timeline, state())))
    return summarize_run(summaries)


def host(size: int) -> list[Event]:
    return [event(Kind.SAMPLE, 1, name="host.rss_bytes", bytes=size)]


def steps(source: str, count: int = 3) -> list[Event]:
    ends = [event(Kind.STEP, S * at, step=at, duration_ns=S) for at in range(1, count + 1)]
    return [fact("run.step_source", source), *ends]


def device(size: int) -> list[Event]:
    return [GPU, sample("torch.reserved_bytes", 1, size)]


LAUNCHER = [*host(40 * GIB), *steps("second", 8)]
RANK = [*host(GIB), *steps("optimizer")]


def test_a_launcher_with_most_on_the_host_stands_behind_ranks_on_devices() -> None:
    run = run_of((None, LAUNCHER), (1, [*RANK, *device(GIB)]), (0, [*RANK, *device(2 * GIB)]))
    assert run.holder.rank == 0
    assert [process.pid for process in run.by_interest] == [102, 101, 100]
    assert run.to_json()["holder"] == 102


def test_without_a_device_those_with_steps_come_before_a_launcher() -> None:
    run = run_of((None, LAUNCHER), (0, [*host(GIB), *steps("module")]), (1, host(3 * GIB)))
    assert [process.pid for process in run.by_interest] == [101, 102, 100]
    assert run.sentence == (
        "No process of this run held GPU memory, as far as was measured. "
        "Among the processes with steps, rank 0 (101) has the highest peak host RSS: 1.00 GiB."
    )


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (device(GIB), RANK),
        (device(2 * GIB), [*device(GIB), *RANK]),
        (RANK, [*LAUNCHER, *device(0)]),
        (steps("program", 1), host(GIB)),
        (host(2 * GIB), host(GIB)),
    ],
    ids=["a device", "bytes on devices", "nothing on a device", "steps", "bytes on the host"],
)
def test_what_comes_first(better: list[Event], worse: list[Event]) -> None:
    assert run_of((None, worse), (None, better)).holder.pid == 101
    assert run_of((None, better), (None, worse)).holder.pid == 100


def test_of_equals_the_lowest_rank_comes_first() -> None:
    alike = [*RANK, *device(GIB)]
    run = run_of((None, alike), (2, alike), (0, alike), (1, alike))
    assert run.holder.rank == 0
    assert all(run.is_alike(process) for process in run.processes)


def test_a_process_far_below_the_holder_is_not_alike() -> None:
    run = run_of((0, device(10 * GIB)), (1, device(8 * GIB)), (2, RANK))
    assert [run.is_alike(process) for process in run.processes] == [True, False, False]


def test_what_no_one_measured_is_said_and_no_zero() -> None:
    run = run_of((None, LAUNCHER), (0, [GPU]))
    assert run.holder.rank == 0
    assert run.holder.device_words == "not measured"
    assert run.sentence == ("GPUs were used, but how much memory was held there was not measured.")
    assert run_of((None, []), (None, [])).sentence == (
        "No process of this run held GPU memory, as far as was measured."
    )


NOT_COUNTED = "is not counted: torch's reserved bytes are not recorded."


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (
            (LAUNCHER, device(GIB), [GPU], device(GIB)),
            "2 processes held about the same: 1.00 GiB each at their peaks. All peaks add up to "
            f"2.00 GiB. What rank 2 (102) held on a GPU {NOT_COUNTED}",
        ),
        (
            ([GPU], device(GIB), [GPU]),
            "Child process 101 held the most: 1.00 GiB at its peak. All peaks add up to 1.00 GiB. "
            "The first process, 100, held nothing that was measured. What 2 processes "
            f"held on GPUs {NOT_COUNTED}",
        ),
        (
            (device(GIB), [GPU]),
            "The first process, 100, held the most: 1.00 GiB at its peak. What rank 1 (101) "
            f"held on a GPU {NOT_COUNTED}",
        ),
    ],
    ids=["alike", "a child", "the first"],
)
def test_gpu_processes_that_no_peak_was_read_of_are_named(
    parts: tuple[list[Event], ...], sentence: str
) -> None:
    assert run_of(*enumerate(parts)).sentence == sentence


def test_a_launcher_without_a_gpu_is_not_missed() -> None:
    run = run_of((None, LAUNCHER), (0, device(GIB)), (1, device(GIB)))
    assert run.sentence is not None
    assert "not counted" not in run.sentence


def test_ranks_alike_on_the_host_are_not_singled_out() -> None:
    run = run_of((None, LAUNCHER), (0, RANK), (1, RANK))
    assert run.sentence is not None
    assert run.sentence.endswith(
        " 2 processes with steps have about the same peak host RSS: 1.00 GiB each."
    )


def test_the_holder_is_not_looked_for_anew_for_each_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = run_of(*((rank, [*RANK, *device(GIB)]) for rank in range(40)))
    asked = 0

    def count(process: Process) -> tuple[int, int, float]:
        nonlocal asked
        asked += 1
        return precedence(process)

    precedence = run_summary._precedence
    monkeypatch.setattr(run_summary, "_precedence", count)
    assert str(run.sentence).startswith("40 processes")
    assert asked <= 10 * 40
