"""Exceptions that say that memory ran out: found, recorded once, and otherwise left alone."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memscope.analysis.timeline.rare_rows import OutOfMemory
from memscope.analysis.timeline.read import read_timeline
from memscope.probes.torch.oom import OomProbe
from memscope.reader.recording import open_recording
from memscope.recorder import memory_errors as oom_errors
from memscope.recorder.memory_errors import find_problem, note_observed, record_error
from memscope.recorder.recorder import Recorder

TORCH = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 79.10 GiB of "
    "which 5.00 MiB is free."
)
HOST = (
    "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."
)


class OutOfMemoryError(RuntimeError):
    """Named as torch's is."""


def read(path: Path) -> tuple[OutOfMemory, ...]:
    with open_recording(path) as recording:
        return read_timeline(recording).ooms


def chained(outer: BaseException, inner: BaseException, *, is_hidden: bool = False) -> Any:
    outer.__context__, outer.__suppress_context__ = inner, is_hidden
    return outer


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OutOfMemoryError(TORCH), "torch"),
        (RuntimeError(HOST), "host"),
        (RuntimeError("CUDA error: out of memory"), "bare"),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
            "bare",
        ),
        (RuntimeError('NVML_SUCCESS == r INTERNAL ASSERT FAILED at "x.cpp":995'), "nvml"),
        (MemoryError(), "host"),
        (MemoryError("Unable to allocate 7.28 TiB for an array"), "host"),
        (chained(ValueError("no batch"), OutOfMemoryError(TORCH)), "torch"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_says_so_is_found(error: BaseException, kind: str) -> None:
    found = find_problem(error)
    assert found is not None
    assert found.message.kind == kind


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyboardInterrupt(),
        SystemExit(1),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        RuntimeError(np.zeros(3)),
        chained(ValueError("no batch"), OutOfMemoryError(TORCH), is_hidden=True),
    ],
    ids=repr,
)
def test_what_does_not_is_not(error: BaseException) -> None:
    assert find_problem(error) is None


def test_real_array_error_is_found() -> None:
    with pytest.raises(MemoryError) as caught:
        np.zeros(1 << 50)
    found = find_problem(caught.value)
    assert found is not None
    assert found.message.kind == "host"


def test_exception_passes_steps_and_blocks_and_is_recorded_once(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.mscope")
    with pytest.raises(OutOfMemoryError), recorder, recorder.step(), recorder.phase("inner"):
        raise OutOfMemoryError(TORCH)
    (found,) = read(tmp_path / "run.mscope")
    assert (found.step, found.device, found.requested_bytes) == (0, 1, 20 << 20)
    assert found.error == f"OutOfMemoryError: {TORCH}"


def test_each_recorder_has_it(tmp_path: Path) -> None:
    outer, inner = Recorder(tmp_path / "outer.mscope"), Recorder(tmp_path / "inner.mscope")
    with pytest.raises(MemoryError), outer, inner:
        raise MemoryError
    assert [len(read(tmp_path / f"{name}.mscope")) for name in ("outer", "inner")] == [1, 1]


def test_observed_one_is_known_again_by_its_size(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run.mscope") as recorder:
        note_observed(recorder, 20 << 20)
        record_error(recorder, OutOfMemoryError(TORCH))
        record_error(recorder, OutOfMemoryError(TORCH.replace("20.00", "21.00")))
    assert [found.requested_bytes for found in read(tmp_path / "run.mscope")] == [21 << 20]


def test_error_that_was_handled_before_a_step_is_not_of_the_step(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run.mscope") as recorder:
        try:
            raise OutOfMemoryError(TORCH)
        except OutOfMemoryError:
            with recorder.step():
                pass
    assert read(tmp_path / "run.mscope") == ()


class Rude(RuntimeError):
    """Refuses everything."""

    __slots__ = ()

    @property
    def args(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no")


def test_exception_that_refuses_to_be_read_passes(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.mscope")
    with pytest.raises(Rude), recorder, recorder.step():
        raise Rude
    assert read(tmp_path / "run.mscope") == ()


def test_hooks_pass_on_and_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def own(kind: object, error: object, trace: object) -> None:
        seen.append((kind, error, trace))

    monkeypatch.setattr(sys, "excepthook", own)
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type))
    recorder = Recorder(tmp_path / "run.mscope", probes=(probe := OomProbe(),))
    oom_errors.bind_recorder(probe, recorder)
    error = OutOfMemoryError(TORCH)
    sys.excepthook(OutOfMemoryError, error, None)
    thread = threading.Thread(target=fail_alone)
    thread.start()
    thread.join()
    recorder.close()
    assert seen == [(OutOfMemoryError, error, None), MemoryError]
    assert sys.excepthook is own
    assert len(read(tmp_path / "run.mscope")) == 2


def fail_alone() -> None:
    raise MemoryError


def test_hook_that_another_stands_in_front_of_only_passes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(sys, "excepthook", lambda *about: seen.append(about[0]))
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    recorder = Recorder(tmp_path / "run.mscope", probes=(OomProbe(),))
    ours = sys.excepthook
    monkeypatch.setattr(sys, "excepthook", lambda *about: ours(*about))
    recorder.close()
    sys.excepthook(MemoryError, MemoryError(), None)
    assert seen == [MemoryError]


@pytest.mark.parametrize("leaving", [SystemExit(9), KeyboardInterrupt()], ids=repr)
def test_a_text_that_leaves_the_program_leaves_its_hook_to_go_on(
    leaving: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Leaving(MemoryError):
        def __str__(self) -> str:
            raise leaving

    seen: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda *about: seen.append(about[0]))
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    probe = OomProbe()
    oom_errors.begin_watching(probe)
    try:
        sys.excepthook(Leaving, Leaving(), None)
    finally:
        oom_errors.end_watching(probe)
    assert seen == [Leaving]
