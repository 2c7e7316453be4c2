"""The real GPU: driver calls, limits, failures, and a capture that the sampler leaves alone."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest
import torch

from memscope import plan
from memscope.errors import MemscopeError
from memscope.events import Kind
from memscope.launch.record import record
from memscope_runners.memory.choice import choose_device
from memscope_runners.memory.cuda_device import CudaDevice
from memscope_runners.memory.cuda_runtime import CudaRuntime
from memscope_runners.memory.device import DeviceOutOfMemory
from memscope_runners.memory.pages import map_anonymous
from tests.runners.memory.full_card import fill_card
from tests.runners.memory.windows import HEAD_LAYOUT, LAYER_LAYOUT, Occupancy, Window

pytestmark = pytest.mark.gpu

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_of_other_tests_is_freed_meanwhile() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def make_cuda(limit_bytes: int | None) -> CudaDevice:
    return CudaDevice(limit_bytes=limit_bytes)


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("unit", ["slab", "entry"])
@pytest.mark.parametrize("allocator", ["naive", "pool", "static", "async", "torch"])
@pytest.mark.parametrize("policy", plan.POLICIES)
def test_weights_are_those_of_the_host(policy, allocator, unit, prefetch):
    keep = None if policy == "off" else 3
    window = Window(6, policy, keep, allocator, unit, prefetch, make_device=make_cuda).run(4)
    uploaded = sum(row.bytes or 0 for row in window.recorder.of(Kind.UPLOAD))
    assert uploaded == window.device.copied_bytes > 0
    assert window.device.allocated_bytes == 0
    assert window.device.malloc_count == window.device.free_count
    reference = Window(6, policy, keep, "pool", unit, prefetch).run(4)
    assert Occupancy.of(window.recorder) == Occupancy.of(reference.recorder)


def test_pool_makes_no_driver_call_from_third_step():
    window = Window(6, "past", 2, prefetch=True, make_device=make_cuda).run(5, close=False)
    assert [window.driver_calls(step) for step in (2, 3, 4)] == [0] * 3
    window.close()


def test_every_upload_is_timed_on_the_device():
    rows = Window(6, "past", 2, prefetch=True, make_device=make_cuda).run(4).recorder.rows
    uploads = [row for row in rows if row.kind == Kind.UPLOAD]
    assert all(row.duration_ns is not None and row.duration_ns > 0 for row in uploads)


@pytest.mark.gpu(alone=True)
def test_malloc_takes_what_the_driver_counts():
    device, runtime = CudaDevice(), CudaRuntime()
    before = runtime.free_bytes()
    buffer = device.malloc(64 * MIB, "weights")
    taken = before - runtime.free_bytes()
    device.free(buffer)
    assert 64 * MIB <= taken <= 68 * MIB
    assert runtime.free_bytes() >= before - 4 * MIB
    with pytest.raises(ValueError, match="freed"):
        device.tensor(buffer)


@pytest.mark.parametrize("call", ["malloc", "malloc_async", "malloc_torch"])
def test_tensors_lie_over_the_memory_of_each_call(call):
    device = CudaDevice()
    buffer = getattr(device, call)(MIB, "weights")
    source = torch.randint(0, 256, (MIB,), dtype=torch.uint8)
    device.upload(buffer, source)
    assert device.tensor(buffer).data_ptr() == buffer.address
    assert torch.equal(device.tensor(buffer).cpu(), source)
    device.fill(buffer, 0x7F)
    assert bool((device.tensor(buffer) == 0x7F).all())
    device.free(buffer)
    device.close()


@pytest.mark.gpu(alone=True)
def test_copies_of_pinned_memory_are_faster_than_of_other():
    device = CudaDevice()
    buffer, memory = device.malloc(64 * MIB, "weights"), map_anonymous(64 * MIB)
    memory.fill_(1)
    pageable = device.measure_link(buffer, [memory] * 4)
    device.pin(memory)
    assert memory.is_pinned()
    pinned = max(device.measure_link(buffer, [memory] * 8) for _ in range(3))
    device.unpin(memory)
    device.free(buffer)
    print(f"pinned {pinned / 1e9:.1f} GB/s, pageable {pageable / 1e9:.1f} GB/s")
    assert pinned > 1.5 * pageable
    assert device.copied_bytes == 0


def test_limit_counts_what_torch_reserved():
    held = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    reserved = torch.cuda.memory_reserved()
    device = CudaDevice(limit_bytes=reserved + 64 * MIB)
    buffer = device.malloc(64 * MIB, "weights")
    with pytest.raises(DeviceOutOfMemory) as caught:
        device.malloc(1, "weights")
    metrics = caught.value.metrics()
    assert metrics["reserved"] == reserved + 64 * MIB == metrics["limit"]
    more = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(DeviceOutOfMemory):
        device.end_step(0, None)
    del more
    device.end_step(1, None)  # its bytes are only cached, and are given back
    device.free(buffer)
    assert held.numel() == 64 * MIB


def test_limit_below_the_window_is_out_of_memory():
    limit = HEAD_LAYOUT.bytes + 2 * LAYER_LAYOUT.bytes
    window = Window(6, "past", 4, limit_bytes=limit, make_device=make_cuda)
    with pytest.raises(DeviceOutOfMemory):
        window.run(2)
    window.close()
    assert window.device.allocated_bytes == 0


@pytest.mark.gpu(alone=True)
def test_card_that_is_full_says_what_is_left():
    device, runtime = CudaDevice(), CudaRuntime()
    fillers = fill_card(runtime)
    try:
        with pytest.raises(DeviceOutOfMemory) as caught:
            device.malloc(64 * MIB, "weights")
    finally:
        for address in fillers:
            runtime.free(address)
    assert caught.value.requested == 64 * MIB > caught.value.free
    assert caught.value.limit == device.total_bytes
    assert device.allocated_bytes == 0
    device.free(device.malloc(64 * MIB, "weights"))  # the error left nothing behind
    assert float(torch.ones(3, device="cuda").sum()) == 3.0


def test_capture_goes_on_beside_the_sampler(tmp_path):
    x = torch.zeros(1000, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with record(tmp_path / "run.mscope") as recorder:
        time.sleep(0.3)  # so that everything was read once
        with torch.cuda.graph(graph):
            until = time.monotonic() + 0.5
            launches = 0
            while time.monotonic() < until:
                x.add_(1)
                launches += 1
                time.sleep(0.001)
        assert recorder.stopped is None
    x.zero_()
    graph.replay()
    assert float(x[0]) == launches
    names = sampled_names(tmp_path / "run.mscope")
    assert {"torch.allocated_bytes", "torch.reserved_bytes", "nvml.used_bytes"} <= names


def sampled_names(path: Any) -> set[str]:
    from memscope.reader.recording import Recording

    with Recording(path) as recording:
        return {
            name
            for batch in recording.batches()
            for name in map(batch.name, batch.where(Kind.SAMPLE))
            if name is not None
        }


def test_device_that_is_not_there_is_named_with_those_that_are():
    count = torch.cuda.device_count()
    with pytest.raises(MemscopeError, match=f"cuda:{count - 1}"):
        CudaDevice(f"cuda:{count}")


def test_best_device_is_the_gpu():
    assert choose_device().name == "cuda:0"


def test_second_device_by_name():
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    device = CudaDevice("cuda:1")
    buffer = device.malloc(MIB, "weights")
    assert device.tensor(buffer).device == torch.device("cuda:1")
    device.free(buffer)
    torch.cuda.set_device(0)
