"""Logs of several processes: each that ran out is told, one is explained, repeats count once."""

from __future__ import annotations

import io
import itertools
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.log.explain import explain_log
from memscope.cli.text.explanation import FAILURES, explanation_lines
from memscope.interop.oom_log import reader as oom_message
from memscope.interop.oom_log.reader import read_log
from tests.memscope.interop.oom_log.messages import oom_line

GIB = 2**30
REFUSAL = (
    "ValueError: Free memory on device cuda:{} ({:.2f}/79.15 GiB) on startup is less than desired "
    "GPU memory utilization (0.9, 71.24 GiB)."
)


def explain(text: str) -> Explanation:
    return explain_log(read_log(io.BytesIO(text.encode())))


def names(explanation: Explanation) -> list[str]:
    return [failure.process for failure in explanation.failures]


def summary(*ranks: int) -> str:
    """What torchrun prints when its processes are gone, the one that failed first at its end."""
    entries = [
        f"[{i}]:\n  time      : x\n  rank      : {r} (local_rank: {r})\n  exitcode  : 1"
        for i, r in enumerate(ranks)
    ]
    head, last = "\n".join(entries[:-1]), entries[-1]
    return f"Failures:\n{head}\nRoot Cause (first observed failure):\n{last}\n"


def test_every_rank_is_told_with_its_own_amounts() -> None:
    log = "\n".join(f"[rank{rank}]: {oom_line(rank, rank / 10)}" for rank in (2, 0, 5))
    explanation = explain(log)
    assert names(explanation) == ["rank 2", "rank 0", "rank 5"]
    found = explanation.to_json()
    assert (found["process"], found["device"]) == ("rank 2", 2)
    assert [each["device"] for each in found["others"]] == [0, 5]
    assert found["others"][1]["free_bytes"] == pytest.approx(GIB / 2, abs=0.005 * GIB)
    assert {each["requested_bytes"] for each in found["others"]} == {2 * GIB}
    assert {each["diagnosis"] for each in found["others"]} == {"shortage"}
    assert [each["line"] for each in found["others"]] == [2, 3]
    assert "3 processes ran out of memory. This is rank 2, the first in the log" in " ".join(
        explanation.notes
    )


def test_one_process_has_no_others() -> None:
    found = explain(f"[rank2]: {oom_line(2)}").to_json()
    assert (found["process"], found["others"]) == ("rank 2", [])
    assert explain(oom_line(2)).to_json()["process"] is None
    assert "all failures" not in "\n".join(explanation_lines(explain(oom_line(2))))


def test_rank_that_torchrun_saw_first_is_explained() -> None:
    log = "\n".join(f"[rank{rank}]: {oom_line(rank)}" for rank in range(4))
    explanation = explain(f"{log}\n{summary(0, 1, 3, 2)}")
    assert names(explanation) == ["rank 2", "rank 0", "rank 1", "rank 3"]
    assert "the first failure that torchrun saw" in " ".join(explanation.notes)
    assert names(explain(f"{log}\n{summary(7, 9)}"))[0] == "rank 0"  # another one's failure


TIMES = {  # a rank's line, at a second
    "kubectl": "[pod/trainer-{0}/main] 2026-01-02T03:04:{1:02d}.5Z [rank{0}]: ",
    "logging": "[rank{0}]: 2026-01-02 03:04:{1:02d},500 - ERROR - ",
    "glog": "E0102 03:04:{1:02d}.500000 77 train.py:9] [rank{0}]: ",
}


def timed(form: str, rank: int, second: int) -> str:
    return TIMES[form].format(rank, second) + oom_line(rank)


@pytest.mark.parametrize("form", TIMES)
def test_rank_that_failed_first_by_the_clock_is_explained(form: str) -> None:
    explanation = explain("\n".join(timed(form, rank, 30 - 7 * rank) for rank in range(3)))
    assert [name.rpartition(" ")[2] for name in names(explanation)] == ["2", "0", "1"]
    assert "the first by the log's times (line 3)" in " ".join(explanation.notes)
    torchruns = explain("\n".join(timed(form, rank, rank) for rank in range(3)) + "\n" + summary(1))
    assert "torchrun saw" in " ".join(torchruns.notes)


@pytest.mark.parametrize("other", ["logging", "glog", ""])
def test_times_that_cannot_be_compared_leave_the_order_of_the_log(other: str) -> None:
    second = timed(other, 1, 5) if other else f"[rank1]: {oom_line(1)}"
    explanation = explain(f"{timed('kubectl', 0, 30)}\n{second}")
    assert names(explanation)[0] == "trainer-0, rank 0"
    assert "the first in the log (line 1)" in " ".join(explanation.notes)


def test_earlier_one_without_amounts_is_said() -> None:
    bare = TIMES["logging"].format(1, 2) + "RuntimeError: CUDA error: out of memory"
    explanation = explain(f"{timed('logging', 0, 30)}\nx\n{bare}")
    assert names(explanation)[0] == "rank 0"
    assert "the first by the log's times that gives numbers" in " ".join(explanation.notes)


def test_rank_with_amounts_is_explained_before_one_without() -> None:
    log = f"[rank1]: RuntimeError: CUDA error: out of memory\nx\nx\nx\n[rank0]: {oom_line(0)}"
    explanation = explain(log)
    assert names(explanation) == ["rank 0", "rank 1"]
    assert explanation.failures[1].diagnosis == "unknown"
    assert "that gives numbers" in " ".join(explanation.notes)


def test_what_the_launcher_prints_again_counts_once() -> None:
    ranks = [f"[rank{rank}]: {oom_line(rank)}" for rank in range(3)]
    again = [oom_line(rank) for rank in (2, 0, 1)]
    for log in (ranks + again, again + ranks, ranks + again + ranks):
        assert len(explain("\n".join(log)).failures) == 3


def test_layers_of_vllm_tell_one_failure() -> None:
    log = "\n".join(
        f"({layer}) ERROR 07-08 01:30:59 [x.py:387] {oom_line(1)}"
        for layer in ("Worker_DP0_TP1 pid=7", "EngineCore_DP0 pid=6", "APIServer pid=1")
    )
    assert names(explain(log)) == ["DP0 TP1"]
    assert "--gpu-memory-utilization" in explain(log).help[0].setting
    bare = "(EngineCore_DP0 pid=6) ERROR 07-08 01:30:59 [x.py:387] CUDA out of memory"
    assert names(explain(f"{log}\n\n{bare}")) == ["DP0 TP1"]


def test_same_amounts_of_other_ranks_are_other_failures() -> None:
    log = "\n".join(f"[rank{rank}]: {oom_line(0)}" for rank in range(4))
    assert names(explain(log)) == [f"rank {rank}" for rank in range(4)]


def test_pods_are_told_apart() -> None:
    log = "\n".join(
        f"[pod/trainer-{pod}/main] [rank{4 * pod + gpu}]: {oom_line(gpu)}"
        for pod, gpu in itertools.product(range(2), range(2))
    )
    expected = ["trainer-0, rank 0", "trainer-0, rank 1", "trainer-1, rank 4", "trainer-1, rank 5"]
    assert names(explain(log)) == expected


def test_devices_of_one_process_are_told_apart() -> None:
    explanation = explain("\n".join(oom_line(device) for device in (1, 0, 1)))
    assert [failure.device for failure in explanation.failures] == [1, 0]
    assert "2 devices ran out of memory" in " ".join(explanation.notes)


def test_one_rank_that_failed_twice_is_one_failure() -> None:
    explanation = explain(f"[rank1]: {oom_line(1, 0.3)}\nx\n[rank1]: {oom_line(1, 0.4)}")
    assert names(explanation) == ["rank 1"]
    assert "2 different messages" in " ".join(explanation.notes)


def test_refusals_of_several_workers_are_told() -> None:
    log = "\n".join(
        f"(Worker_TP{tp} pid={tp}) ERROR 07-08 01:30:59 [x.py:387] {REFUSAL.format(tp, 50 + tp)}"
        for tp in range(3)
    )
    explanation = explain(log)
    assert names(explanation) == ["TP0", "TP1", "TP2"]
    assert [failure.device for failure in explanation.failures] == [0, 1, 2]
    assert explanation.diagnosis == "outside"


def test_failure_long_before_the_last_one_is_not_of_it() -> None:
    log = f"[rank0]: {oom_line(0)}\n" + "step\n" * 5000 + f"[rank1]: {oom_line(1)}"
    assert names(explain(log)) == ["rank 1"]


@given(order=st.permutations(range(5)), width=st.integers(40, 90))
@settings(max_examples=25, deadline=None)
def test_wrapped_lines_between_each_other_are_kept_apart(order: list[int], width: int) -> None:
    texts = {rank: oom_line(rank, rank / 10) for rank in order}
    pieces = {
        rank: [text[start : start + width] for start in range(0, len(text), width)]
        for rank, text in texts.items()
    }
    rows = itertools.zip_longest(*(pieces[rank] for rank in order))
    lines = [
        f"[rank{rank}]: {piece}"
        for row in rows
        for rank, piece in zip(order, row, strict=True)
        if piece is not None
    ]
    explanation = explain("\n".join(lines))
    assert names(explanation) == [f"rank {rank}" for rank in order]
    for failure in explanation.failures:
        assert failure.sizes_bytes == explain(texts[failure.device or 0]).sizes_bytes


def test_text_tells_one_line_each_and_counts_the_rest() -> None:
    log = "\n".join(f"[rank{rank}]: {oom_line(rank % 8)}" for rank in range(100))
    lines = explanation_lines(explain(log))
    start = lines.index("all failures, the one above first")
    assert lines[start + 1].split() == [
        *("rank", "0", "GPU", "0", "2.00", "GiB", "asked", "512.00", "MiB", "free"),
        *("shortage", "line", "1"),
    ]
    assert lines[start + FAILURES + 1] == "  and 68 more (68 shortage); --json has them all"
    assert lines[start + FAILURES + 2] == ""


def test_hostile_names_of_pods_and_ranks_stay_text() -> None:
    log = "\n".join(
        f"[pod/<script>-{i}/main] [rank{'9' * 300}]: [pod/a\x1b]0;x\x07/b] {oom_line(i)}"
        for i in range(3)
    )
    explanation = explain(log)
    shown = "\n".join(explanation_lines(explanation))
    assert len(explanation.failures) == 3
    assert "\x1b" not in shown
    assert "<script>" not in shown
    json.dumps(explanation.to_json(), allow_nan=False)


def seconds(ranks: int, *, are_same: bool) -> float:
    lines = [
        line
        for rank in range(ranks)
        for line in (
            f"[rank{rank}]: Traceback (most recent call last):",
            f"[rank{rank}]: {oom_line(rank % 8, 0 if are_same else rank % 150 / 100)}",
        )
    ]
    log = "\n".join(lines + [line.partition(": ")[2] for line in lines])
    start = time.process_time()
    explanation = explain(log)
    explanation_lines(explanation)
    json.dumps(explanation.to_json())
    assert len(explanation.failures) == ranks
    return time.process_time() - start


@pytest.mark.parametrize(("ranks", "are_same"), [(4_000, False), (1_500, True)])
def test_thousands_of_ranks_take_linear_time(ranks: int, are_same: bool) -> None:
    few, many = seconds(ranks // 10, are_same=are_same), seconds(ranks, are_same=are_same)
    assert many < 30 * few, (few, many)


def test_more_than_is_kept_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oom_message, "MAX_KEPT", 50)
    ranks = 60
    log = "\n".join(
        f"[rank{rank}]: CUDA error: out of memory\nTraceback (" for rank in range(ranks)
    )
    explanation = explain(log)
    assert len(explanation.failures) == 50
    assert "At least 50 processes" in " ".join(explanation.notes)
    assert names(explanation)[0] == "rank 10"
