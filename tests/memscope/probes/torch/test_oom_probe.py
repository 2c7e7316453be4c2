"""Out-of-memory errors as they are recorded: by torch's observer, and by exceptions."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from memscope.analysis.memory_map.recorded_map import RecordedMap, recorded_map
from memscope.analysis.timeline.read import read_timeline
from memscope.analysis.timeline.timeline import Timeline
from memscope.events import Kind
from memscope.probes.torch import allocator_map, oom
from memscope.probes.torch.allocator_map import emit_map
from memscope.probes.torch.oom import OomProbe, on_out_of_memory
from memscope.reader.recording import open_recording
from memscope.recorder.memory_errors import recorded_by_caller
from memscope.recorder.recorder import Recorder
from tests.fakes import ListRecorder
from tests.memscope.fake_allocator import GIB, MIB
from tests.memscope.probes.torch.fake_cuda import FakeCuda, OutOfMemoryError

WANTED = 7 * GIB // 2
VERSIONS = ("2.1", "2.2", "2.3", "2.5", "2.8", "2.10", "2.12", "2.14")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    use(fake, monkeypatch)
    return fake


def use(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oom, "_attached", {})
    monkeypatch.setattr(allocator_map, "MAX_SECONDS", 600.0)
    monkeypatch.setitem(sys.modules, "torch", fake)


def begin(path: Path, fake: FakeCuda, history: int = 0) -> Recorder:
    """A recorder whose probe has seen CUDA."""
    recorder = Recorder(path, probes=(OomProbe(history),))
    wait_until(lambda: bool(fake.observers))
    return recorder


def wait_until(is_true: Any) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def read(path: Path) -> Timeline:
    with open_recording(path) as recording:
        return read_timeline(recording)


def map_of(path: Path) -> RecordedMap:
    found = recorded_map(read(path))
    assert found is not None
    return found


def fill(fake: FakeCuda) -> None:
    """Every other block of 64 MiB of 2 GiB is kept; then 3.5 GiB are asked for."""
    addresses = [fake.alloc(64 * MIB, by="keep" if i % 2 else "drop") for i in range(32)]
    for address in addresses[::2]:
        fake.allocator.free(address)


def fail(fake: FakeCuda, size: int = WANTED) -> None:
    with pytest.raises(OutOfMemoryError, match="CUDA out of memory"):
        fake.alloc(size)


def test_error_is_recorded_with_counters_and_map(tmp_path: Path, torch: FakeCuda) -> None:
    with begin(tmp_path / "run.mscope", torch) as recorder:
        fill(torch)
        with recorder.step():
            fail(torch)
    timeline = read(tmp_path / "run.mscope")
    (error,) = timeline.ooms
    assert (error.requested_bytes, error.step, error.device) == (WANTED, 0, 0)
    state = torch.allocator.state()
    free = 4 * GIB - state["reserved"]
    assert error.counters["free"] == free
    assert error.counters["reserved"] == state["reserved"]
    memory = map_of(tmp_path / "run.mscope").memory
    assert memory.reserved_bytes == state["reserved"]
    assert memory.bytes_in(0) == state["allocated"]
    assert timeline.facts["probe.oom"]["owners"] == "--history was off"


@pytest.mark.parametrize("version", VERSIONS)
def test_map_of_every_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    fake = FakeCuda(version)
    use(fake, monkeypatch)
    with begin(tmp_path / "run.mscope", fake):
        fill(fake)
        fail(fake)
    found = map_of(tmp_path / "run.mscope")
    assert found.memory.reserved_bytes == fake.allocator.reserved
    assert found.left_out_segments == 0
    assert found.has_owners


def test_thirty_errors_are_thirty_rows_and_one_map(tmp_path: Path, torch: FakeCuda) -> None:
    with begin(tmp_path / "run.mscope", torch):
        fill(torch)
        for _ in range(30):
            fail(torch)
    timeline = read(tmp_path / "run.mscope")
    assert timeline.oom_counts["engine"] == 30
    assert torch.snapshots == 1
    assert timeline.counts["segment"] == len(torch.allocator.segments)


def test_observer_is_attached_once_and_serves_whoever_is_open(
    tmp_path: Path, torch: FakeCuda
) -> None:
    for number in range(3):
        with begin(tmp_path / f"{number}.mscope", torch):
            fail(torch, 5 * GIB)
    fail(torch, 5 * GIB)  # nobody is open
    assert len(torch.observers) == 1
    assert [read(tmp_path / f"{n}.mscope").oom_counts["engine"] for n in range(3)] == [1, 1, 1]


def test_outer_and_inner_recorder_both_have_it(tmp_path: Path, torch: FakeCuda) -> None:
    with begin(tmp_path / "outer.mscope", torch):
        inner = Recorder(tmp_path / "inner.mscope", probes=(OomProbe(),))
        with pytest.raises(OutOfMemoryError), inner, inner.step():
            torch.alloc(5 * GIB)
    for name in ("outer", "inner"):
        assert read(tmp_path / f"{name}.mscope").oom_counts["engine"] == 1
        assert recorded_map(read(tmp_path / f"{name}.mscope")) is None  # nothing was reserved


def test_threads_that_fail_at_once_lose_nothing(tmp_path: Path, torch: FakeCuda) -> None:
    with begin(tmp_path / "run.mscope", torch):
        fill(torch)
        threads = [threading.Thread(target=fail, args=(torch,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert read(tmp_path / "run.mscope").oom_counts["engine"] == 8
    assert torch.snapshots == 1


def test_closed_recorder_and_broken_torch_disturb_nothing(
    tmp_path: Path, torch: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = begin(tmp_path / "run.mscope", torch)
    monkeypatch.setattr(torch, "allocator", None)
    on_out_of_memory(0, 1, 2, 3)  # every reading of it raises
    recorder.close()
    on_out_of_memory(0, 1, 2, 3)
    timeline = read(tmp_path / "run.mscope")
    assert [error.requested_bytes for error in timeline.ooms] == [1]


def test_observer_that_is_called_again_from_within_does_not_recurse(
    tmp_path: Path, torch: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reenter(arguments: object = None) -> dict[str, Any]:
        on_out_of_memory(0, 7, 8, 9)
        return torch.allocator.snapshot()

    monkeypatch.setattr(torch._C, "_cuda_memorySnapshot", reenter)
    with begin(tmp_path / "run.mscope", torch):
        fail(torch, 5 * GIB)
    assert read(tmp_path / "run.mscope").oom_counts["engine"] == 1


def test_fraction_is_a_limit_and_the_card_is_known_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeCuda(capacity=8 * GIB, fraction=0.5)
    use(fake, monkeypatch)
    with begin(tmp_path / "run.mscope", fake):
        fill(fake)
        fail(fake)
    (error,) = read(tmp_path / "run.mscope").ooms
    assert (error.counters["limit"], error.counters["total"]) == (4 * GIB, 8 * GIB)


def test_backend_without_observer_says_so_and_exceptions_are_recorded(
    tmp_path: Path, torch: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(observer: object) -> None:
        raise RuntimeError("cudaMallocAsync does not yet support attachOutOfMemoryObserver\nat x")

    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", refuse)
    recorder = Recorder(tmp_path / "run.mscope", probes=(OomProbe(),))
    wait_until(lambda: oom._attached)
    with pytest.raises(OutOfMemoryError), recorder, recorder.step():
        torch.alloc(5 * GIB)
    timeline = read(tmp_path / "run.mscope")
    assert "cudaMallocAsync" in timeline.facts["probe.oom"]["absent"]
    (error,) = timeline.ooms
    assert (error.requested_bytes, error.step) == (5 * GIB, 0)


def test_old_torch_that_calls_with_its_lock_held_gets_no_observer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeCuda("2.0")
    use(fake, monkeypatch)
    oom.attach_observer(fake)
    assert fake.observers == []


def test_history_is_asked_of_torch_and_ended(tmp_path: Path, torch: FakeCuda) -> None:
    begin(tmp_path / "run.mscope", torch, history=1000).close()
    (first, options), (last, _) = torch.history
    assert (first, options["max_entries"], options["stacks"]) == (("all",), 1000, "python")
    assert last == (None,)


def test_forked_child_leaves_the_history_of_its_parent(torch: FakeCuda) -> None:
    probe = OomProbe(1000)
    probe._begin()
    probe._pid = -1  # as its parent's is another
    probe.close()
    assert len(torch.history) == 1


def test_history_of_the_program_is_left_alone(tmp_path: Path, torch: FakeCuda) -> None:
    torch._C._cuda_isHistoryEnabled = lambda: True
    begin(tmp_path / "run.mscope", torch, history=1000).close()
    assert torch.history == []


def test_caller_that_records_itself_is_not_doubled(tmp_path: Path, torch: FakeCuda) -> None:
    with begin(tmp_path / "run.mscope", torch) as recorder:
        with recorded_by_caller(), recorder.step():
            fail(torch, 5 * GIB)
        recorder.emit(Kind.OOM, 0, bytes=9)
    assert [error.requested_bytes for error in read(tmp_path / "run.mscope").ooms] == [9]


def large(segments: int, blocks: int) -> dict[str, Any]:
    """A snapshot of equal segments of equal blocks."""
    rows = []
    for number in range(segments):
        block = {"size": 512, "requested_size": 500, "state": "active_allocated", "frames": []}
        address = 0x7F0000000000 + number * blocks * 1024
        rows.append(
            {
                "device": 0,
                "address": address,
                "total_size": 512 * blocks,
                "allocated_size": 512 * blocks,
                "active_size": 512 * blocks,
                "stream": 0,
                "segment_type": "small",
                "segment_pool_id": (0, 0),
                "blocks": [{**block, "address": address + 512 * i} for i in range(blocks)],
            }
        )
    return {"segments": rows}


def test_blocks_past_the_cap_are_counted_not_recorded() -> None:
    recorder = ListRecorder()
    emit_map(
        recorder,  # type: ignore[arg-type]
        large(30, 10_000),
        device=0,
        at_ns=1,
        torch_version="2.11",
        clock=lambda: 0.0,
    )
    (fact,) = (row.data for row in recorder.of(Kind.FACT))
    assert recorder.count(Kind.BLOCK) == allocator_map.MAX_BLOCKS == fact["blocks"]
    assert (fact["left_out_segments"], fact["left_out_blocks"]) == (10, 100_000)
    assert fact["left_out_bytes"] == 10 * 10_000 * 512


def test_time_past_the_cap_ends_it() -> None:
    recorder, seconds = ListRecorder(), iter(range(100))
    clock: Any = lambda: float(next(seconds))  # noqa: E731
    emit_map(
        recorder,  # type: ignore[arg-type]
        large(30, 6_000),
        device=0,
        at_ns=1,
        torch_version="2.11",
        clock=clock,
    )
    (fact,) = (row.data for row in recorder.of(Kind.FACT))
    assert 0 < fact["blocks"] < 180_000
    assert fact["blocks"] + fact["left_out_blocks"] == 180_000
    assert fact["reason"] == "more than 2 s"


def test_map_of_too_many_blocks_is_not_even_read(
    tmp_path: Path, torch: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = torch.counters

    def many(device: int) -> dict[str, Any]:
        return counters(device) | {"active": {"all": {"current": oom.MOST_BLOCKS + 1}}}

    monkeypatch.setattr(torch._C, "_cuda_memoryStats", many)
    with begin(tmp_path / "run.mscope", torch):
        fail(torch, 5 * GIB)
    timeline = read(tmp_path / "run.mscope")
    assert torch.snapshots == 0
    assert timeline.facts["torch.map"]["reason"] == "more than 1,000,000 blocks"
    assert timeline.oom_counts["engine"] == 1
