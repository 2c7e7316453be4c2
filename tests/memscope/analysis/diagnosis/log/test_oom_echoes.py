"""One failure told by several messages is one; only what is earlier may have been caught."""

from __future__ import annotations

import io

import pytest

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.log.explain import explain_log
from memscope.interop.oom_log.reader import read_log

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {mib}.00 MiB. GPU {gpu} has a "
    "total capacity of 79.15 GiB of which 301.25 MiB is free. Including non-PyTorch memory, this "
    "process has 78.85 GiB memory in use. Of the allocated memory 76.05 GiB is allocated by "
    "PyTorch, and 212.41 MiB is reserved by PyTorch but unallocated."
)
FIRST, SECOND = MESSAGE.format(mib=448, gpu=0), MESSAGE.format(mib=608, gpu=0)
WARMUP = (
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests."
)
CAUSE = "\nThe above exception was the direct cause of the following exception:\n"
CAUGHT = "The program may have caught earlier ones."


def explain(*lines: str) -> Explanation:
    return explain_log(read_log(io.BytesIO("\n".join(lines).encode())))


def notes(*lines: str) -> str:
    return " ".join(explain(*lines).notes)


@pytest.mark.parametrize(
    "log",
    [
        (FIRST,),
        (FIRST, CAUSE, WARMUP),
        (
            "Allocator (GPU_0_bfc) ran out of memory trying to allocate 24.00GiB (rounded to 1)",
            "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 25769803776 bytes.",
        ),
        (FIRST, "\n" * 100, "RuntimeError: CUDA error: out of memory"),
    ],
)
def test_error_and_what_it_caused_are_one_failure(log: tuple[str, ...]) -> None:
    assert "different messages" not in notes(*log)
    assert CAUGHT not in notes(*log)


def test_earlier_failure_may_have_been_caught() -> None:
    assert f"2 different messages about memory. This is the one on line 4. {CAUGHT}" in notes(
        FIRST, "", "", SECOND
    )


def test_nothing_is_earlier_than_the_first_failure() -> None:
    log = (FIRST, "\n" * 300, "RuntimeError: CUDA error: out of memory")
    assert "2 different messages about memory. This is the one on line 1." in notes(*log)
    assert CAUGHT not in notes(*log)


def test_other_amounts_of_the_same_request_are_another_failure() -> None:
    assert CAUGHT in notes(FIRST, FIRST.replace("212.41", "212.42"))
    assert not notes(FIRST, FIRST)


def test_engine_that_says_what_its_workers_said_is_no_process() -> None:
    workers = [f"(Worker_TP{i} pid={i}) {MESSAGE.format(mib=448, gpu=i)}" for i in range(3)]
    names = ["TP0", "TP1", "TP2"]
    for echo in (WARMUP, MESSAGE.format(mib=448, gpu=1)):
        found = explain(*workers, f"(EngineCore_DP0 pid=270) {echo}")
        assert [each.process for each in found.failures] == names
        assert "3 processes ran out" in " ".join(found.notes)


def test_engine_alone_and_engines_of_other_workers_are_processes() -> None:
    engines = [f"(EngineCore_DP{i} pid={i}) {MESSAGE.format(mib=448, gpu=i)}" for i in range(2)]
    assert [each.process for each in explain(*engines).failures] == ["DP0", "DP1"]
    worker = f"(Worker_TP0 pid=9) {MESSAGE.format(mib=448, gpu=0)}"
    assert [each.process for each in explain(worker, *engines).failures] == ["TP0", "DP1"]
