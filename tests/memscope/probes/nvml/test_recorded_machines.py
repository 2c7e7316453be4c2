"""A program on every kind of machine: it ends, what is missing has its reason, nothing is zero."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from memscope import Recorder
from memscope.analysis.ledger.ledger import Ledger
from memscope.analysis.summary.summary import Summary, summarize
from memscope.analysis.timeline.read import read_timeline
from memscope.cli.text.summary import summary_lines
from memscope.probes.nvml.probe import NvmlProbe
from memscope.probes.torch import device_free
from memscope.probes.torch.allocator import AllocatorProbe
from memscope.probes.torch.device import DeviceProbe
from memscope.probes.torch.device_free import DeviceFreeProbe
from memscope.reader.recording import open_recording
from tests.fakes import TOTAL_BYTES, FakeTorch
from tests.memscope.probes.nvml.fake_machines import MIB, NOT_AVAILABLE, FakeCard, FakeMachine

ME = os.getpid()
OWN = {ME: 600 * MIB}
BY_RUNTIME = "mem_get_info"


def machine(init_error: str | None = None, **card: object) -> FakeMachine:
    return FakeMachine(FakeCard(**card), init_error=init_error)  # type: ignore[arg-type]


# Machine, who tells the ledger's total, what it says of what is missing.
MACHINES: dict[str, tuple[FakeMachine, str, str]] = {
    "modern": (machine(processes=OWN), "NVML v2", "CUPTI was off"),
    "R430": (
        machine(processes=OWN, failing={"version 2": "FunctionNotFound"}),
        "NVML v1",
        "the driver is too old for this (NVML: FunctionNotFound); nvml.used_bytes includes it",
    ),
    "R510 idle": (machine(used=0, reserved=308 * MIB), "NVML v2", "is not among the 0"),
    "R535 misread": (
        machine(processes={7: 1 << 60, NOT_AVAILABLE: 600 * MIB}),
        "NVML v2",
        "is not among the 2 that the driver lists",
    ),
    "R535 swapped": (
        machine(processes={ME: 1 << 60}),
        "NVML v2",
        "the driver gives no memory of a process",
    ),
    "WSL": (machine(processes={ME: None}), "NVML v2", "gives no memory of a process"),
    "WSL sentinel": (machine(processes={ME: NOT_AVAILABLE}), "NVML v2", "gives no memory"),
    "container": (machine(processes={1 << 22: MIB}), "NVML v2", "in a container it has another"),
    "MIG without permission": (
        machine(failing={"memory": "NoPermission", "processes": "NoPermission"}),
        BY_RUNTIME,
        "the driver refuses this user (NVML: NoPermission)",
    ),
    "GB10": (
        machine(processes=OWN, failing={"memory": "NotSupported"}),
        BY_RUNTIME,
        "does not support this here",
    ),
    "GB10 says zero": (machine(total=0), BY_RUNTIME, "the driver says 0 bytes in all"),
    "unknown card": (machine(failing={"handle": "NotFound"}), BY_RUNTIME, "NVMLError_NotFound"),
    "library mismatch": (
        machine("LibRmVersionMismatch"),
        BY_RUNTIME,
        "the driver's library and its kernel module have different versions",
    ),
    "no driver": (machine("LibraryNotFound"), BY_RUNTIME, "no NVIDIA driver is installed"),
    "not loaded": (machine("DriverNotLoaded"), BY_RUNTIME, "the NVIDIA driver is not loaded"),
    "daemon-reload": (machine("Unknown"), BY_RUNTIME, "the driver gives no reason"),
}


def run_program(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nvml: FakeMachine | None,
    between: Callable[[FakeTorch], None] = lambda torch: None,
) -> tuple[Summary, Ledger, str]:
    """Four steps on a made-up machine, each after a reading by another thread."""
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    probe = NvmlProbe(nvml)
    probes = (DeviceProbe(), AllocatorProbe(), probe, DeviceFreeProbe(probe.lacks_memory))
    with Recorder(path) as recorder:
        for number in range(4):
            reader = threading.Thread(target=lambda: [each(recorder) for each in probes])
            reader.start()
            reader.join()
            with recorder.step():
                pass
            if number == 1:
                between(torch)
    assert set(torch.free_threads) <= {"MainThread"}
    with open_recording(path) as recording:
        timeline = read_timeline(recording)
        summary = summarize(timeline, recording.state)
    (ledger,) = summary.ledgers
    return summary, ledger, "\n".join(summary_lines(summary, str(path)))


def assert_honest(summary: Summary, ledger: Ledger, text: str) -> None:
    """Nothing is zero for want of a reading, all adds up, and nothing passes unmeasured."""
    for _, line in ledger.lines:
        assert line.bytes is not None or line.reason, line.key
        assert line.coverage == "measured" or line.reason or line.is_rest, line.key
    assert sum(line.bytes or 0 for line in ledger.total.leaves) == ledger.total.bytes
    assert ledger.total.bytes == TOTAL_BYTES
    passed = [verdict for verdict in summary.verdicts if verdict.verdict == "pass"]
    assert all(verdict.value is not None for verdict in passed)
    assert "healthy" not in text
    assert summary.steps == 4
    assert summary.state.name == "complete"


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_ends_with_reasons(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml, source, words = MACHINES[name]
    summary, ledger, text = run_program(tmp_path / "run.mscope", monkeypatch, nvml)
    assert ledger.source == source
    assert words in text
    assert_honest(summary, ledger, text)


def test_without_the_package_its_name_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    summary, ledger, text = run_program(tmp_path / "run.mscope", monkeypatch, None)
    assert "nvidia-ml-py is not installed" in text
    assert_honest(summary, ledger, text)


@pytest.mark.parametrize("error", ["GpuIsLost", "Unknown"])
def test_card_lost_in_mid_run_is_not_touched_again(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = FakeCard(processes=OWN, failing={})
    nvml = FakeMachine(card)
    summary, ledger, text = run_program(
        tmp_path / "run.mscope",
        monkeypatch,
        nvml,
        lambda _: card.failing.update(everything=error),  # type: ignore[attr-defined]
    )
    assert nvml.refusals == 1
    used = ledger.find("used")
    assert used is not None
    assert used.coverage == "partial"
    assert "lost while the program ran" in used.reason
    assert_honest(summary, ledger, text)


def test_nothing_is_asked_of_the_runtime_while_a_graph_is_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = FakeTorch()
    torch.is_capturing = True
    monkeypatch.setitem(sys.modules, "torch", torch)
    clock = SimpleNamespace(perf_counter_ns=itertools.count(10**9).__next__)
    monkeypatch.setattr(device_free, "time", clock)
    probe = DeviceFreeProbe(lambda device: True)
    with Recorder(tmp_path / "run.mscope") as recorder:
        probe(recorder)
        for _ in range(3):
            with recorder.step():
                pass
        assert torch.free_threads == []
        torch.is_capturing = False
        for _ in range(50):
            with recorder.step():
                pass
        assert len(torch.free_threads) == 1  # 20 a second at most, by a clock that hardly moves


def test_fault_of_the_runtime_ends_its_readings_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = FakeTorch()

    def fail(device: int) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    torch.cuda.mem_get_info = fail
    monkeypatch.setitem(sys.modules, "torch", torch)
    with Recorder(tmp_path / "run.mscope") as recorder:
        DeviceFreeProbe(lambda device: True)(recorder)
        with recorder.step():
            pass
        assert recorder.at_step_end is None
