"""The host device: its limit, its counters, and views that outlive their buffer."""

from __future__ import annotations

import gc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memscope_runners.memory.device import DeviceOutOfMemory, HostDevice


def test_limit_is_exact():
    device = HostDevice(limit_bytes=1000)
    device.malloc(600, "weights")
    device.malloc(400, "weights")
    with pytest.raises(DeviceOutOfMemory) as caught:
        device.malloc(1, "kv")
    assert caught.value.metrics() == {
        "scope": "engine",
        "free": 0,
        "allocated": 1000,
        "reserved": 1000,
        "total": device.total_bytes,
        "limit": 1000,
    }
    assert device.malloc_count == 2
    assert device.allocated_bytes == device.peak_bytes == 1000


def test_limit_is_the_whole_machine_unless_given():
    device = HostDevice()
    assert device.limit_bytes == device.total_bytes > 2**28
    with pytest.raises(DeviceOutOfMemory):
        device.malloc(device.total_bytes + 1, "weights")


def test_view_that_outlives_its_buffer_stays_readable():
    device = HostDevice()
    buffer = device.malloc(1 << 20, "weights")
    device.upload(buffer, torch.full((1 << 20,), 7, dtype=torch.uint8))
    view = device.tensor(buffer)[100:200].view(torch.int8)
    device.free(buffer)
    others = [device.malloc(1 << 20, "weights") for _ in range(20)]  # would reuse the pages
    for other in others:
        device.fill(other, 1)
    assert view.tolist() == [7] * 100
    assert device.mapped_bytes == 21 << 20
    assert device.allocated_bytes == 20 << 20
    del view
    gc.collect()
    assert device.mapped_bytes == 20 << 20


def test_freed_buffer_without_views_is_unmapped_at_once():
    device = HostDevice()
    device.free(device.malloc(5000, "weights"))
    assert device.mapped_bytes == 0


def test_second_free_is_refused():
    device = HostDevice()
    buffer = device.malloc(10, "weights")
    device.free(buffer)
    with pytest.raises(ValueError, match="freed"):
        device.free(buffer)
    with pytest.raises(ValueError, match="freed"):
        device.upload(buffer, torch.zeros(10, dtype=torch.uint8))
    assert device.free_count == 1
    assert device.allocated_bytes == 0


@pytest.mark.parametrize("source", [torch.zeros(9, dtype=torch.uint8), torch.zeros(10)])
def test_upload_of_another_size_or_type_is_refused(source):
    device = HostDevice()
    buffer = device.malloc(10, "weights")
    with pytest.raises(ValueError, match="into 10 bytes"):
        device.upload(buffer, source)
    assert device.copied_bytes == 0


@pytest.mark.parametrize("ahead", [False, True])
def test_upload_copies_and_counts(ahead):
    device = HostDevice()
    sources = [torch.randint(0, 256, (size,), dtype=torch.uint8) for size in (300, 5, 4096)]
    copies = [(device.malloc(source.numel(), "weights"), source) for source in sources]
    transfer = device.start_upload(copies, ahead=ahead)
    timing = transfer.wait()
    assert all(torch.equal(device.tensor(buffer), source) for buffer, source in copies)
    assert device.copied_bytes == 4401
    assert timing is not None
    assert len(timing.durations_ns) == 3
    assert min(timing.durations_ns) > 0
    device.close()


def test_upload_ahead_that_failed_long_ago_still_raises():
    device = HostDevice()
    copies = [(device.malloc(10, "weights"), torch.zeros(9, dtype=torch.uint8))]
    transfer = device.start_upload(copies, ahead=True)
    device.close()
    with pytest.raises(ValueError, match="into 10 bytes"):
        transfer.wait()


def test_upload_of_every_other_byte_is_refused():
    device = HostDevice()
    with pytest.raises(ValueError, match="contiguous"):
        device.upload(device.malloc(10, "weights"), torch.zeros(20, dtype=torch.uint8)[::2])
    assert device.copied_bytes == 0


def test_buffers_start_as_zeros_and_hold_what_they_are_filled_with():
    device = HostDevice()
    buffer = device.malloc(100, "weights")
    assert device.tensor(buffer).sum() == 0
    with torch.inference_mode():
        inside = device.malloc(100, "weights")
    device.fill(inside, 0x7F)
    assert set(device.tensor(inside).tolist()) == {0x7F}


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50_000)), max_size=60))
@settings(max_examples=60, deadline=None)
def test_counters_follow_any_order_of_calls(calls):
    device = HostDevice(limit_bytes=200_000)
    held, peak = [], 0
    for is_free, size in calls:
        if is_free and held:
            device.free(held.pop(size % len(held)))
        else:
            used = sum(buffer.bytes for buffer in held)
            try:
                held.append(device.malloc(size, "weights"))
                assert used + size <= 200_000
            except DeviceOutOfMemory:
                assert used + size > 200_000
        used = sum(buffer.bytes for buffer in held)
        peak = max(peak, used)
        assert (device.allocated_bytes, device.peak_bytes) == (used, peak)
        assert device.mapped_bytes == used
        assert device.malloc_count - device.free_count == len(held)
