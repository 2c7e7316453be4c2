"""CUPTI, made up in C: what libraries took has their name, and the program is never held up."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memscope.events import Kind
from memscope.probes.cupti import buffers as cupti_buffers
from memscope.probes.cupti import probe as cupti
from memscope.probes.cupti.buffers import CuptiAbsent, build
from memscope.probes.cupti.library import CuptiError, find_loaded
from memscope.probes.cupti.probe import CuptiProbe
from memscope.probes.cupti.records import library_name
from tests.fakes import MODERN, FakeNvml, FakeTorch, ListRecorder, Row
from tests.memscope.probes.cupti.fake_cupti import (
    HELD_BY_ANOTHER,
    NO_PRIVILEGE,
    TORCH_LIBRARY,
    FakeCupti,
)

MIB = 1 << 20
BASE = 600 * MIB
RESERVED = 101  # of FakeTorch


class Watched:
    """A program on a GPU, recorded with CUPTI; `collect` is a turn of the recorder's thread."""

    def __init__(self, cupti: FakeCupti, torch: FakeTorch) -> None:
        self.cupti, self.torch = cupti, torch
        self.nvml = FakeNvml(MODERN)
        self.holds(BASE)
        self.recorder: Any = ListRecorder()
        self.probe = CuptiProbe(lambda: cupti.library, self.nvml)

    def begin(self) -> Watched:
        self.probe.begin(self.recorder)
        return self

    def holds(self, size: int) -> None:
        """What NVML says of the process."""
        self.nvml.profile = replace(MODERN, process_bytes=size + RESERVED)

    def collect(self) -> None:
        self.recorder.is_closing = True  # each turn reads everything
        self.probe(self.recorder)
        self.recorder.is_closing = False

    def calls(self) -> list[Row]:
        return list(self.recorder.of(Kind.DEVICE_MALLOC, Kind.DEVICE_FREE))

    def fact(self, key: str) -> dict[str, Any]:
        found = [row.data for row in self.recorder.of(Kind.FACT) if row.name == key]
        return found[-1] if found else {}

    @property
    def outside(self) -> dict[str, Any]:
        return self.fact("cupti.outside.0")


@pytest.fixture
def profiler(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """torch.autograd.profiler, as far as a profile begins and ends there."""
    module = SimpleNamespace(
        _prepare_profiler=lambda: "begun",
        _disable_profiler=lambda: "ended",
        _is_profiler_enabled=False,
    )
    monkeypatch.setitem(sys.modules, "torch.autograd.profiler", module)
    return module


@pytest.fixture
def program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profiler: SimpleNamespace
) -> Iterator[Watched]:
    monkeypatch.setenv("MEMSCOPE_CACHE_DIR", str(tmp_path))
    torch = FakeTorch()
    torch.cuda.memory_snapshot = lambda include_traces: []
    torch.cuda._tls = SimpleNamespace()
    torch.cuda._lazy_call = lambda call: call()
    torch.cuda.__spec__ = SimpleNamespace(_initializing=False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.cuda", torch.cuda)
    watched = Watched(FakeCupti(tmp_path), torch)
    yield watched
    watched.probe.close()


def test_an_allocation_has_the_name_of_its_library(program):
    program.begin()
    before_ns = program.recorder.clock()
    program.cupti.allocate(4096, 64 * MIB)
    program.collect()
    (call,) = program.calls()
    assert (call.kind, call.name, call.bytes) == (
        Kind.DEVICE_MALLOC, "libcublas.so.13", 64 * MIB
    )  # fmt: skip
    assert (call.address, call.device) == (4096, 0)
    assert before_ns - 10**9 < call.t_ns < program.recorder.clock() + 10**9
    assert program.outside["libraries"] == {"libcublas.so.13": 64 * MIB}


def test_a_release_takes_it_out_of_the_librarys_sum(program):
    program.begin()
    program.cupti.allocate(4096, 64 * MIB)
    program.collect()
    program.cupti.release(4096, 64 * MIB)
    program.cupti.release(77, 5)  # of something from before
    program.collect()
    assert [call.kind for call in program.calls()] == [Kind.DEVICE_MALLOC, Kind.DEVICE_FREE]
    assert program.outside["libraries_bytes"] == 0
    assert program.outside["calls"] == {"libcublas.so.13": 2}


def test_an_address_that_is_allocated_again_was_released_before(program):
    program.begin()
    program.cupti.allocate(4096, 64 * MIB)
    program.cupti.allocate(4096, 10 * MIB, "/x/libcudnn.so.9")
    program.collect()
    assert [call.bytes for call in program.calls()] == [64 * MIB, 64 * MIB, 10 * MIB]
    assert program.outside["libraries"] == {"libcudnn.so.9": 10 * MIB}


def test_torchs_own_segments_are_not_outside(program):
    program.begin()
    program.cupti.allocate(4096, 20 * MIB, TORCH_LIBRARY)
    program.cupti.release(4096, 20 * MIB)
    program.collect()
    assert program.calls() == []
    assert program.outside["libraries"] == {}


def test_a_call_without_a_name_is_torchs_where_its_allocator_has_the_address(program):
    segments = [{"address": 4096, "total_size": 1 << 20}]
    program.torch.cuda.memory_snapshot = lambda include_traces: segments
    program.begin()
    program.cupti.allocate(5000, 100, None)
    program.cupti.allocate(4 << 20, 200, None)
    program.collect()
    assert program.outside["libraries"] == {"a library that CUPTI does not name": 200}


def test_a_pool_counts_as_what_the_driver_keeps_for_it(program):
    program.begin()
    program.cupti.allocate(4096, 100 * MIB, pool=(9, 128 * MIB, 0))
    program.collect()
    assert program.outside["pools_bytes"] == 128 * MIB
    assert program.outside["pools"] == {"libcublas.so.13": 100 * MIB}
    assert program.outside["libraries_bytes"] == 0
    program.cupti.release(4096, 100 * MIB, pool=(9, 128 * MIB, 0))
    program.collect()
    assert program.outside["pools_bytes"] == 0


def test_a_pool_that_keeps_all_is_not_given_back(program):
    program.begin()
    program.cupti.allocate(4096, 100 * MIB, pool=(9, 128 * MIB, 1 << 63))
    program.cupti.release(4096, 100 * MIB)
    program.collect()
    assert program.outside["pools_bytes"] == 128 * MIB


def test_pinned_memory_and_arrays_of_code_are_no_allocations_on_the_device(program):
    program.begin()
    program.cupti.allocate(4096, 5 * MIB, memory_kind=2)
    program.cupti.allocate(8192, 5 * MIB, memory_kind=6)
    program.collect()
    assert program.calls() == []


def test_growth_while_code_is_loaded_is_of_modules(program):
    program.begin()
    program.collect()
    program.cupti.native.fake_load_module()
    program.holds(BASE + 90 * MIB)
    program.collect()
    assert program.outside["base_bytes"] == BASE
    assert program.outside["modules_bytes"] == 90 * MIB
    (load,) = program.recorder.of(Kind.MODULE_LOAD)
    assert load.bytes == 90 * MIB


def test_arrays_that_come_with_code_tell_that_it_was_loaded(program):
    program.begin()
    program.collect()
    program.cupti.allocate(8192, 5, memory_kind=6)
    program.holds(BASE + 3 * MIB)
    program.collect()
    assert program.outside["modules_bytes"] == 3 * MIB


def test_growth_without_loaded_code_is_nobodys(program):
    program.begin()
    program.collect()
    program.holds(BASE + 90 * MIB)
    program.collect()
    program.cupti.native.fake_load_module()
    program.collect()
    assert program.outside["modules_bytes"] == 0


def test_what_libraries_took_is_not_counted_as_code(program):
    program.begin()
    program.collect()
    program.cupti.native.fake_load_module()
    program.cupti.allocate(4096, 64 * MIB)
    program.holds(BASE + 94 * MIB)
    program.collect()
    assert program.outside["modules_bytes"] == 30 * MIB


def test_a_reading_with_a_call_in_between_is_not_used(program, monkeypatch):
    program.begin()
    program.collect()
    program.cupti.native.fake_load_module()
    read = program.nvml.nvmlDeviceGetComputeRunningProcesses

    def read_late(card):
        program.cupti.allocate(4096, 64 * MIB)
        return read(card)

    monkeypatch.setattr(program.nvml, "nvmlDeviceGetComputeRunningProcesses", read_late)
    program.holds(BASE + 64 * MIB)
    program.collect()
    assert program.outside["modules_bytes"] == 0


def test_without_bytes_of_the_process_modules_are_absent(program):
    program.nvml.profile = replace(MODERN, process_bytes=None)
    program.begin()
    program.cupti.allocate(4096, 5)
    program.collect()
    assert "modules_bytes" not in program.outside
    assert program.outside["libraries_bytes"] == 5


def test_more_records_than_a_buffer_holds_arrive_in_their_order(program):
    program.begin()
    for number in range(2000):
        program.cupti.allocate(4096 + number, 1)
    program.collect()
    assert [call.address for call in program.calls()] == list(range(4096, 6096))
    assert program.fact("cupti.cost")["records"] == 2000
    assert program.fact("cupti.cost")["callbacks"] >= 8
    assert program.fact("cupti.cost")["callback_ns"] > 0


def test_cupti_makes_no_buffers_of_its_own_on_the_device(program):
    program.begin()
    program.collect()
    assert program.cupti.native.fake_attribute(6) == 0
    assert program.outside["cupti_bytes"] == 0


def test_a_callback_needs_no_interpreter_while_the_allocators_lock_is_held(program):
    """Another thread holds the interpreter and waits for that lock: in Python both would hang."""
    program.begin()
    record = program.cupti.record(4096, 5)
    thread = threading.Thread(
        target=program.cupti.native.fake_call_under_lock, args=(ctypes.byref(record), 200)
    )
    thread.start()
    program.cupti.native.usleep(50_000)  # until it has the lock
    program.cupti.holding_gil.fake_take_lock()
    thread.join()
    program.collect()
    assert len(program.calls()) == 1


@pytest.mark.parametrize(
    ("code", "environment", "reason"),
    [
        (HELD_BY_ANOTHER, {"CUDA_INJECTION64_PATH": "/x/libother.so"}, "libother.so"),
        (HELD_BY_ANOTHER, {"NSYS_PROFILING_SESSION_ID": "1"}, "Nsight Systems"),
        (HELD_BY_ANOTHER, {}, "torch.profiler"),
        (NO_PRIVILEGE, {}, "may not trace"),
    ],
)
def test_another_holder_and_a_refusal_are_named(program, monkeypatch, code, environment, reason):
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    program.cupti.native.fake_hold(code)
    program.begin().collect()
    program.cupti.native.fake_hold(0)
    assert reason in program.fact("cupti")["absent"]
    assert program.fact("cupti")["fix"]
    assert program.outside == {}
    assert not program.cupti.native.fake_is_enabled()


def test_without_a_compiler_it_says_what_to_install(program, monkeypatch, tmp_path):
    monkeypatch.setenv("MEMSCOPE_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    program.probe = CuptiProbe(cupti_buffers.load_buffers, program.nvml)  # type: ignore[arg-type]
    program.begin()
    assert "no C compiler" in program.fact("cupti")["absent"]
    assert "gcc" in program.fact("cupti")["fix"]


def test_a_compiler_that_fails_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMSCOPE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CC", "false")
    with pytest.raises(CuptiAbsent, match="false cannot compile"):
        build()
    assert not list(tmp_path.rglob("*.so"))


def test_the_profiler_has_cupti_to_itself(program, profiler):
    program.begin()
    program.cupti.allocate(4096, 5)
    assert profiler._prepare_profiler() == "begun"
    assert not program.cupti.native.fake_is_enabled()
    assert not program.cupti.native.fake_is_subscribed()
    program.collect()
    assert program.calls() == []
    assert profiler._disable_profiler() == "ended"
    program.cupti.allocate(8192, 7)
    program.collect()
    assert [call.bytes for call in program.calls()] == [5, 7]


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The probe's clock: its one value is now."""
    now = [100.0]
    monkeypatch.setattr(cupti, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_how_long_the_profiler_had_cupti_is_known_while_it_has_it(program, profiler, seconds):
    program.begin().collect()
    assert program.fact("cupti")["given_up_s"] == 0
    profiler._prepare_profiler()
    seconds[0] += 2
    program.collect()
    assert program.fact("cupti")["given_up_s"] == 2
    profiler._disable_profiler()
    seconds[0] += 3
    program.collect()
    assert program.fact("cupti")["given_up_s"] == 2


def test_a_pause_that_cannot_be_ended_counts_once_and_to_the_end(program, profiler, seconds):
    program.begin()
    for _ in range(2):
        profiler._prepare_profiler()
        seconds[0] += 2
        program.cupti.native.fake_fail_to_enable(NO_PRIVILEGE)
        profiler._disable_profiler()
    program.collect()
    assert program.fact("cupti")["given_up_s"] == 4


def test_the_profiler_has_cupti_also_where_it_cannot_be_flushed(program, profiler):
    program.begin()
    program.cupti.native.fake_fail_to_flush(NO_PRIVILEGE)
    assert profiler._prepare_profiler() == "begun"
    assert not program.cupti.native.fake_is_enabled()
    assert not program.cupti.native.fake_is_subscribed()


def test_a_buffer_of_another_tool_is_left_alone(program):
    program.begin()
    record = program.cupti.record(4096, 5)
    program.cupti.native.fake_fill_others(ctypes.byref(record))
    program.collect()
    assert program.calls() == []
    assert program.cupti.native.fake_is_others_whole()
    program.cupti.allocate(8192, 7)
    program.collect()
    assert [call.bytes for call in program.calls()] == [7]


def test_a_profiler_that_keeps_the_callbacks_leaves_the_records(program, profiler):
    program.begin()
    profiler._prepare_profiler()
    program.cupti.native.fake_hold(HELD_BY_ANOTHER)
    profiler._disable_profiler()
    program.cupti.native.fake_hold(0)
    program.cupti.allocate(8192, 7)
    program.collect()
    assert len(program.calls()) == 1
    assert program.fact("cupti")["marks_modules"] is False


def test_a_profile_that_runs_already_is_left_alone(program, profiler):
    profiler._is_profiler_enabled = True
    program.begin()
    assert "torch.profiler is running" in program.fact("cupti")["absent"]
    assert not program.cupti.native.fake_is_enabled()


def test_a_failure_on_the_way_lets_go_of_everything(program, profiler):
    original = profiler._prepare_profiler
    program.begin()
    program.cupti.native.fake_fail_to_flush(NO_PRIVILEGE)
    with pytest.raises(CuptiError, match="INSUFFICIENT_PRIVILEGES"):
        program.collect()
    assert profiler._prepare_profiler is original
    assert not program.cupti.native.fake_is_enabled()
    assert not program.cupti.native.fake_is_subscribed()


def test_closing_lets_go_of_everything(program, profiler):
    original = profiler._prepare_profiler
    program.begin()
    assert profiler._prepare_profiler is not original
    program.probe.close()
    assert profiler._prepare_profiler is original
    assert not program.cupti.native.fake_is_enabled()
    assert not program.cupti.native.fake_is_subscribed()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v/lib/python3.12/site-packages/nvidia/cublas/lib/libcublas.so.13", "libcublas.so.13"),
        ("/usr/lib/libffi.so.8", "ctypes"),
        ("/v/site-packages/cuda/bindings/cyruntime.cpython-312-x.so", "cuda.bindings"),
        (
            "/v/site-packages/cupy_backends/cuda/api/runtime.cpython-312-x.so",
            "cupy_backends.cuda",
        ),
        ("/home/me/thing.cpython-312-x.so", "thing.cpython-312-x.so"),
    ],
)
def test_libraries_have_the_names_people_know(path, name):
    assert library_name(path) == name


def test_the_loaded_cupti_is_found_in_the_maps(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text("7f0-7f1 r-xp 0 08:01 5    /v/nvidia/cu13/lib/libcupti.so.13\n")
    assert find_loaded(maps) == "/v/nvidia/cu13/lib/libcupti.so.13"
    maps.write_text("7f0-7f1 r-xp 0 08:01 5    /v/my env/libcupti.so.13\n")
    assert find_loaded(maps) == "/v/my env/libcupti.so.13"
    maps.write_text("7f0-7f1 r-xp 0 08:01 5    /v/libother.so\n")
    assert find_loaded(maps) is None
