"""Readings beside the program: each by its name, or absent with its reason."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from typing import Any

import pytest

from memscope.analysis.timeline.read import read_timeline
from memscope.events import Kind
from memscope.probes.nvml.probe import NvmlProbe
from memscope.probes.torch.allocator import AllocatorProbe, read_counters
from memscope.probes.torch.device import ENVIRONMENT, DeviceProbe
from memscope.reader.recording import open_recording
from memscope.recorder.recorder import Recorder
from tests.fakes import (
    CONTAINER,
    MODERN,
    NO_DRIVER,
    NO_PERMISSION,
    OLD,
    WINDOWS_MODEL,
    DriverProfile,
    FakeNvml,
    FakeTorch,
    ListRecorder,
)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def read(probe: Any, times: int = 1) -> ListRecorder:
    recorder: Any = ListRecorder()
    for _ in range(times):
        probe(recorder)
    return recorder


def sampled(recorder: ListRecorder) -> dict[str | None, float | None]:
    rows = recorder.of(Kind.SAMPLE)
    return {row.name: row.value if row.bytes is None else row.bytes for row in rows}


def absent(recorder: ListRecorder) -> dict[str, str]:
    facts = [row.data for row in recorder.of(Kind.FACT) if row.name == "nvml"]
    assert len(facts) <= 1, "said once"
    return facts[0]["absent"] if facts else {}


def test_torchs_counters_have_their_names(torch):
    samples = sampled(read(AllocatorProbe()))
    assert samples["torch.allocated_bytes"] == 100
    assert samples["torch.reserved_bytes"] == 101
    assert samples["torch.peak_reserved_bytes"] == 202
    assert samples["torch.device_mallocs"] == 7
    assert "torch.device_frees" not in samples  # this torch has no such counter


def test_counters_come_from_the_public_call_where_the_cheap_one_is_gone(torch):
    cheap = read_counters(torch, 0)
    del torch._C._cuda_memoryStats
    assert read_counters(torch, 0) == cheap


def test_device_that_torch_never_used_is_not_sampled(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(devices=2))
    assert {row.device for row in read(AllocatorProbe()).rows} == {0}


@pytest.mark.parametrize("probe", [AllocatorProbe(), NvmlProbe(FakeNvml(MODERN))])
def test_nothing_is_read_before_torch_has_initialised_cuda(monkeypatch, probe):
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(is_initialized=False))
    assert read(probe).rows == []
    monkeypatch.delitem(sys.modules, "torch")
    assert read(probe).rows == []


def test_recording_imports_neither_torch_nor_nvml(tmp_path):
    program = (
        "import sys, time, memscope\n"
        f"with memscope.record({str(tmp_path / 'run.mscope')!r}): time.sleep(0.3)\n"
        "print([name for name in ('torch', 'pynvml') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_modern_driver_tells_all(torch):
    recorder = read(NvmlProbe(FakeNvml(MODERN)))
    assert sampled(recorder) == {
        "nvml.total_bytes": 1000,
        "nvml.driver_reserved_bytes": 50,
        "nvml.free_bytes": 300,
        "nvml.used_bytes": 650,
        "nvml.process_bytes": 600,
    }
    assert absent(recorder) == {}


def test_old_driver_counts_its_own_part_as_used(torch):
    recorder = read(NvmlProbe(FakeNvml(OLD)), times=3)
    assert sampled(recorder)["nvml.used_bytes"] == 700
    assert "nvml.driver_reserved_bytes" not in sampled(recorder)
    assert "used_bytes includes it" in absent(recorder)["nvml.driver_reserved_bytes"]


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        (CONTAINER, "container"),
        (WINDOWS_MODEL, "no memory of a process"),
        (NO_PERMISSION, "Insufficient Permissions"),
    ],
)
def test_process_bytes_are_absent_with_their_reason(torch, profile: DriverProfile, reason):
    recorder = read(NvmlProbe(FakeNvml(profile)), times=3)
    assert "nvml.process_bytes" not in sampled(recorder)
    assert sampled(recorder)["nvml.used_bytes"] == 650
    assert reason in absent(recorder)["nvml.process_bytes"]


def test_no_driver_is_said_once(torch):
    recorder = read(NvmlProbe(FakeNvml(NO_DRIVER)), times=3)
    assert sampled(recorder) == {}
    assert "Driver Not Loaded" in absent(recorder)["nvml"]


def test_card_of_another_uuid_is_not_read(torch):
    recorder = read(NvmlProbe(FakeNvml(MODERN, uuid="GPU-ff")), times=3)
    assert sampled(recorder) == {}
    assert "Not Found" in absent(recorder)["cuda:0"]


@pytest.mark.parametrize(("cost", "lists"), [(0.005, 3), (30e-6, 4)])
def test_processes_are_listed_once_a_second_or_with_a_change(torch, monkeypatch, cost, lists):
    """With each change of the used bytes where that is cheap."""
    now = [100.0]
    clock = itertools.count(0, cost)
    monkeypatch.setattr("memscope.probes.nvml.probe.time.perf_counter", lambda: next(clock))
    monkeypatch.setattr("memscope.probes.nvml.probe.time.monotonic", lambda: now[0])
    nvml = FakeNvml(MODERN)
    probe = NvmlProbe(nvml)
    for at, used in ((100.0, 650), (100.5, 660), (100.9, 670), (100.95, 680), (101.5, 680)):
        now[0], nvml.used = at, used
        read(probe)
    assert nvml.calls.count("processes") == lists
    assert nvml.calls.count("memory") == 5


def test_a_cold_first_list_does_not_make_the_process_old(torch, monkeypatch):
    costs = iter((0.0, 0.02, 1.0, 1.0 + 30e-6, 2.0, 2.0 + 30e-6))
    monkeypatch.setattr("memscope.probes.nvml.probe.time.perf_counter", lambda: next(costs))
    monkeypatch.setattr("memscope.probes.nvml.probe.time.monotonic", lambda: 100.0)
    nvml = FakeNvml(MODERN)
    probe = NvmlProbe(nvml)
    for nvml.used in (650, 660, 670):
        read(probe)
    assert nvml.calls.count("processes") == 3


def test_processes_are_listed_at_the_end_whatever_that_costs(torch, monkeypatch):
    clock = itertools.count(0, 0.005)
    monkeypatch.setattr("memscope.probes.nvml.probe.time.perf_counter", lambda: next(clock))
    monkeypatch.setattr("memscope.probes.nvml.probe.time.monotonic", lambda: 100.0)
    nvml = FakeNvml(MODERN)
    probe, recorder = NvmlProbe(nvml), ListRecorder()
    for recorder.is_closing in (False, False, False, True):
        nvml.used += 1
        probe(recorder)  # type: ignore[arg-type]
    assert nvml.calls.count("processes") == 3


class Turns:
    """A probe that keeps what it was asked, and on which thread."""

    def __init__(self) -> None:
        self.began_on = 0
        self.turns: list[bool] = []

    def begin(self, recorder: Recorder) -> None:
        self.began_on = threading.get_ident()

    def __call__(self, recorder: Recorder) -> None:
        self.turns.append(recorder.is_closing)
        recorder.sample("turn", value=len(self.turns))


def test_probes_begin_on_the_programs_thread_and_read_once_more_at_the_end(tmp_path):
    turns = Turns()
    Recorder(tmp_path / "run.mscope", probes=[turns]).close()
    assert turns.began_on == threading.get_ident()
    assert turns.turns[-1]
    with open_recording(tmp_path / "run.mscope") as recording:
        (last,) = [read_timeline(recording).latest("turn")]
    assert last is not None
    assert last.value == len(turns.turns)


def test_driver_is_said_once(torch):
    recorder = read(NvmlProbe(FakeNvml(MODERN)), times=3)
    said = [row.data for row in recorder.of(Kind.FACT) if row.name == "nvml.driver"]
    assert said == [{"driver": "580.1"}]


def test_version_of_torch_is_said_once_it_is_imported(monkeypatch):
    probe, recorder = DeviceProbe(), ListRecorder()
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(is_initialized=False))
    monkeypatch.delitem(sys.modules, "torch")
    probe(recorder)  # type: ignore[arg-type]
    assert recorder.rows == []
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(is_initialized=False))
    for _ in range(3):
        probe(recorder)  # type: ignore[arg-type]
    said = [(row.name, row.data) for row in recorder.of(Kind.FACT)]
    assert said == [("torch.version", {"torch": "2.13.0", "cuda": "13.0"})]


def test_variables_that_change_memory_are_recorded_and_no_others(monkeypatch):
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("SECRET_TOKEN", "1")
    recorder = ListRecorder()
    DeviceProbe().begin(recorder)  # type: ignore[arg-type]
    said = [(row.name, row.data) for row in recorder.of(Kind.FACT)]
    assert said == [
        ("environment", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    ]


def test_names_of_readings_load_no_probe() -> None:
    code = (
        "import sys, memscope.probes\n"
        "loaded = {name for name in sys.modules if name.startswith('memscope.probes.')}\n"
        "print(*loaded, *({'numpy', 'pyarrow', 'torch', 'pynvml'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed.stdout.split() == [], printed.stderr
    assert printed.returncode == 0
