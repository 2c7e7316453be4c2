"""The order of copies and compute on a GPU, on one that is made up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from memscope import plan
from memscope.events import Kind
from memscope_runners.memory.cuda_device import CudaDevice
from memscope_runners.memory.device import DeviceOutOfMemory
from memscope_runners.memory.driver import Driver
from memscope_runners.q8.slab import Q8Weight
from tests.fakes import ListRecorder
from tests.runners.memory.fake_cuda import FakeRuntime
from tests.runners.memory.windows import ENTRIES, HEAD_LAYOUT, LAYER_LAYOUT, Occupancy, Window

SLAB, HEAD = LAYER_LAYOUT.bytes, HEAD_LAYOUT.bytes
WINDOWS = [("off", None), *((p, k) for p in plan.POLICIES[1:] for k in (1, 3, 6))]


def make_window(
    runtime: FakeRuntime,
    policy: str = "past",
    keep: int | None = 2,
    *options: Any,
    compute_ns: int = 0,
    **more: Any,
) -> Window:
    """A window on a made-up GPU, whose compute takes `compute_ns` a layer."""

    def launch(weights: Mapping[str, Q8Weight]) -> None:
        for weight in weights.values():
            runtime.launch(weight.q.data_ptr(), compute_ns // len(weights))

    def device(limit_bytes: int | None) -> CudaDevice:
        return CudaDevice(limit_bytes=limit_bytes, runtime=runtime)

    return Window(6, policy, keep, *options, make_device=device, on_layer=launch, **more)


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("unit", ["slab", "entry"])
@pytest.mark.parametrize("allocator", ["naive", "pool", "static", "async", "torch"])
@pytest.mark.parametrize(("policy", "keep"), WINDOWS)
@pytest.mark.parametrize("poison", [False, True])
def test_weights_are_there_when_used_and_whole_until_then(
    policy, keep, allocator, unit, prefetch, poison
):
    runtime = FakeRuntime()
    window = make_window(runtime, policy, keep, allocator, unit, prefetch)
    window.residency._poison = poison
    window.run(4)
    uploaded = sum(row.bytes or 0 for row in window.recorder.of(Kind.UPLOAD))
    assert uploaded == window.device.copied_bytes > 0
    assert window.device.allocated_bytes == 0
    assert not runtime.memory
    assert window.device.malloc_count == window.device.free_count
    reference = Window(6, policy, keep, "pool", unit, prefetch).run(4)
    assert [window.uploaded_layers(step) for step in range(4)] == [
        reference.uploaded_layers(step) for step in range(4)
    ]
    assert Occupancy.of(window.recorder) == Occupancy.of(reference.recorder)


def test_fake_sees_weights_used_without_a_wait(monkeypatch):
    window = make_window(FakeRuntime())
    monkeypatch.setattr("memscope_runners.memory.cuda_transfer.CudaTransfer.wait", lambda _: None)
    with pytest.raises(AssertionError):
        window.run(1)


def test_fake_sees_a_copy_over_weights_in_use(monkeypatch):
    window = make_window(FakeRuntime(), "past", 1, prefetch=True)
    monkeypatch.setattr(CudaDevice, "retire", lambda *_: None)
    window.residency._poison = False
    with pytest.raises(AssertionError, match="overwritten"):
        window.run(2)


@pytest.mark.parametrize("prefetch", [False, True])
def test_upload_rows_stand_before_the_row_of_their_step(prefetch):
    rows = make_window(FakeRuntime(), "past", 2, prefetch=prefetch).run().recorder.rows
    ended = -1
    for row in rows:
        if row.kind == Kind.STEP:
            ended = row.step
        elif row.kind in (Kind.UPLOAD, Kind.WAIT):
            assert row.step > ended
    assert ended == 3


def test_program_waits_for_nothing_within_a_step():
    runtime = FakeRuntime()
    window = make_window(runtime, "past", 2, prefetch=True)
    window.residency.begin_step(0)
    for layer in range(6):
        window.residency.enter_layer(layer)
    assert runtime.synchronizations == 0
    window.close()


def test_copy_and_wait_are_timed_on_the_device():
    runtime = FakeRuntime()
    window = make_window(runtime, "past", 1, compute_ns=SLAB // 4, prefetch=True).run(3)
    uploads = [row for row in window.recorder.of(Kind.UPLOAD) if row.layer < 6]
    assert {row.duration_ns for row in uploads} == {SLAB}  # a byte takes a ns
    waits = [row.duration_ns for row in window.recorder.of(Kind.WAIT) if row.step == 2]
    computed = SLAB // 4 // ENTRIES * ENTRIES
    assert set(waits) == {SLAB - computed}
    assert len(waits) == 5  # L − k


def test_copy_that_was_there_in_time_is_not_waited_for():
    runtime = FakeRuntime()
    window = make_window(runtime, "past", 1, compute_ns=2 * SLAB, prefetch=True).run(3)
    assert [row for row in window.recorder.of(Kind.WAIT) if row.step == 2] == []
    assert window.uploaded_layers(2) == 5


def test_entries_are_timed_one_by_one():
    window = make_window(FakeRuntime(), "past", 1, "pool", "entry").run(1)
    uploads = [row for row in window.recorder.of(Kind.UPLOAD) if row.layer == 3]
    assert [row.duration_ns for row in uploads] == [row.bytes for row in uploads]
    assert len(uploads) == ENTRIES


def test_nothing_is_read_while_a_graph_is_captured():
    runtime = FakeRuntime()
    window = make_window(runtime)
    window.residency.begin_step(0)
    window.residency.enter_layer(0)
    runtime.is_capture_on = True
    window.residency.end_step()
    assert window.recorder.count(Kind.UPLOAD) == 0
    runtime.is_capture_on = False
    window.residency.end_step()
    assert [row.layer for row in window.recorder.of(Kind.UPLOAD)] == [6, 0]
    window.close()


def test_device_without_timing_makes_one_event_a_copy():
    runtime = FakeRuntime()
    device = CudaDevice(runtime=runtime, is_timing=False)
    copies = [(device.malloc(8, "weights"), torch.arange(8, dtype=torch.uint8)) for _ in range(3)]
    transfer = device.start_upload(copies, ahead=True)
    transfer.wait()
    assert transfer.read() is None
    assert all(torch.equal(device.tensor(buffer), source) for buffer, source in copies)


def test_limit_counts_what_torch_reserved():
    runtime = FakeRuntime()
    runtime.reserved_bytes = 600
    device = CudaDevice(limit_bytes=1000, runtime=runtime)
    device.malloc(400, "weights")
    with pytest.raises(DeviceOutOfMemory) as caught:
        device.malloc(1, "weights")
    assert caught.value.metrics() == {
        "scope": "engine",
        "free": 0,
        "allocated": 400,
        "reserved": 1000,
        "total": 1 << 30,
        "limit": 1000,
    }


def test_limit_is_judged_at_a_step_end():
    runtime = FakeRuntime()
    device = CudaDevice(limit_bytes=1000, runtime=runtime)
    device.malloc(900, "weights")
    runtime.reserved_bytes = 100
    device.end_step(0, None)
    runtime.reserved_bytes = 101
    with pytest.raises(DeviceOutOfMemory) as caught:
        device.end_step(1, None)
    assert caught.value.requested == 1


def test_peak_register_is_sampled_at_step_ends():
    runtime, recorder = FakeRuntime(), ListRecorder()
    runtime.reserved_bytes = 77
    device = CudaDevice(runtime=runtime)
    any_recorder: Any = recorder
    device.end_step(5, any_recorder)
    samples = {row.name: row.bytes for row in recorder.rows if row.step == 5}
    assert samples["torch.peak_reserved_bytes"] == samples["torch.reserved_bytes"] == 77


def test_full_card_empties_torchs_cache_and_tries_again():
    runtime, recorder = FakeRuntime(total_bytes=1000), ListRecorder()
    runtime.room_bytes, runtime.reserved_bytes, runtime.idle_torch_bytes = 100, 500, 500
    any_recorder: Any = recorder
    driver = Driver(CudaDevice(runtime=runtime), "weight_pool", any_recorder)
    driver.malloc(300)
    assert recorder.count(Kind.ALLOC_RETRY) == 1
    with pytest.raises(DeviceOutOfMemory) as caught:
        driver.malloc(400)
    assert caught.value.free == 300  # as the driver says
    assert caught.value.requested == 400


def test_torch_that_is_full_is_out_of_memory():
    runtime = FakeRuntime(total_bytes=1000)
    window = make_window(runtime, "past", 2, "torch")
    with pytest.raises(DeviceOutOfMemory) as caught:
        window.run(1)
    assert caught.value.requested == HEAD
    window.close()


@pytest.mark.parametrize("allocator", ["naive", "pool", "static", "async"])
def test_weights_past_the_limit_leave_the_counters_right(allocator):
    runtime = FakeRuntime()
    with pytest.raises(DeviceOutOfMemory):
        make_window(runtime, "past", 4, allocator, limit_bytes=HEAD + 3 * SLAB).run(2)
    if allocator == "static":
        assert not runtime.memory


def test_async_and_torch_go_to_their_own_calls():
    for allocator, calls in (("async", {"malloc_async", "free_async"}), ("torch", {"empty"})):
        runtime = FakeRuntime()
        window = make_window(runtime, "past", 1, allocator).run(2)
        assert set(runtime.calls) - {"trim_async"} == calls
        assert bool(window.recorder.count(Kind.DEVICE_MALLOC)) == (allocator == "async")
