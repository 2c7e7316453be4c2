"""The weight pool: exact geometry, a bound on what idles, and the retry."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from memscope.errors import MemscopeError
from memscope.events import Kind
from memscope_runners.memory.allocators import make_allocator
from memscope_runners.memory.device import Buffer, DeviceOutOfMemory, HostDevice
from memscope_runners.memory.driver import Driver
from memscope_runners.memory.weight_pool import MAX_IDLE_BUFFERS, WeightPool
from tests.fakes import ListRecorder

SIZES = {"16x1": 1024, "32x1": 2048, "64x2": 8192}


def make_pool(limit_bytes: int | None = None, **options: int) -> tuple[WeightPool, ListRecorder]:
    recorder: Any = ListRecorder()
    driver = Driver(HostDevice(limit_bytes=limit_bytes), "weight_pool", recorder)
    return WeightPool(driver, **options), recorder


def test_returned_buffer_is_reused_for_its_geometry():
    pool, recorder = make_pool()
    buffer = pool.take("16x1", 1024, 0, 0)
    pool.give_back(buffer, "16x1", 0, 0)
    assert pool.take("16x1", 1024, 1, 3) is buffer
    kinds = [Kind.POOL_MISS, Kind.DEVICE_MALLOC, Kind.POOL_RETURN, Kind.POOL_HIT]
    assert [row.kind for row in recorder.rows] == kinds
    assert recorder.rows[-1].step == 1
    assert recorder.rows[-1].layer == 3
    assert recorder.rows[-1].name == "16x1"


def test_same_size_of_another_geometry_is_not_reused():
    pool, _ = make_pool()
    buffer = pool.take("32x1", 1024, 0, 0)
    pool.give_back(buffer, "32x1", 0, 0)
    assert pool.take("16x2", 1024, 0, 0) is not buffer
    assert pool.idle_bytes == 1024


def test_one_buffer_more_than_the_bound_is_freed():
    pool, recorder = make_pool()
    buffers = [pool.take("16x1", 1024, 0, 0) for _ in range(MAX_IDLE_BUFFERS + 1)]
    for buffer in buffers:
        pool.give_back(buffer, "16x1", 0, 0)
    assert pool.idle_count == 128
    assert recorder.count(Kind.POOL_RETURN) == 128
    assert recorder.count(Kind.POOL_OVERFLOW) == recorder.count(Kind.DEVICE_FREE) == 1
    assert buffers[-1].memory is None


def test_full_device_frees_idle_buffers_of_other_geometries_and_retries():
    pool, recorder = make_pool(limit_bytes=10 * 1024)
    pool.give_back(pool.take("64x2", 8192, 0, 0), "64x2", 0, 0)
    pool.take("32x1", 2048, 0, 0)
    assert recorder.count(Kind.ALLOC_RETRY) == 0
    pool.take("16x1", 1024, 2, 5)
    assert pool.idle_bytes == 0
    (retry,) = recorder.of(Kind.ALLOC_RETRY)
    assert (retry.step, retry.layer, retry.bytes) == (2, 5, 1024)
    assert [row.bytes for row in recorder.of(Kind.DEVICE_FREE)] == [8192]


def test_retry_that_fails_is_out_of_memory_and_no_retry_row():
    pool, recorder = make_pool(limit_bytes=4096)
    pool.give_back(pool.take("16x1", 1024, 0, 0), "16x1", 0, 0)
    with pytest.raises(DeviceOutOfMemory) as caught:
        pool.take("64x2", 8192, 0, 0)
    assert caught.value.allocated == 0
    assert recorder.count(Kind.ALLOC_RETRY) == 0
    assert recorder.count(Kind.DEVICE_FREE) == 1


def test_nothing_idle_leaves_nothing_to_retry():
    pool, recorder = make_pool(limit_bytes=2048)
    pool.take("16x1", 1024, 0, 0)
    with pytest.raises(DeviceOutOfMemory, match=r"2\.00 KiB requested, 1\.00 KiB free"):
        pool.take("32x1", 2048, 0, 0)
    assert recorder.count(Kind.DEVICE_FREE) == 0


def test_unknown_allocator_is_refused():
    with pytest.raises(MemscopeError, match="naive, pool"):
        make_allocator("arena", HostDevice())


class PoolMachine(RuleBasedStateMachine):
    """Any order of takes and returns, on a device that runs full now and then."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.device = HostDevice(limit_bytes=40 * 1024)
        self.pool = WeightPool(Driver(self.device, "weight_pool"), max_idle=6)
        self.out: dict[int, Buffer] = {}

    @rule(target=held, geometry=st.sampled_from(sorted(SIZES)))
    def take(self, geometry: str) -> tuple[str, Buffer] | None:
        try:
            buffer = self.pool.take(geometry, SIZES[geometry], 0, 0)
        except DeviceOutOfMemory:
            assert self.pool.idle_count == 0
            return None
        assert buffer.bytes == SIZES[geometry]
        assert id(buffer) not in self.out, "handed out twice"
        assert all(buffer.address != other.address for other in self.out.values())
        self.out[id(buffer)] = buffer
        return geometry, buffer

    @rule(item=consumes(held))
    def give_back(self, item: tuple[str, Buffer] | None) -> None:
        if item is not None:
            geometry, buffer = item
            del self.out[id(buffer)]
            self.pool.give_back(buffer, geometry, 0, 0)

    @invariant()
    def bytes_are_conserved(self) -> None:
        held = sum(buffer.bytes for buffer in self.out.values())
        assert self.device.allocated_bytes == held + self.pool.idle_bytes
        assert self.device.allocated_bytes <= self.device.limit_bytes

    @invariant()
    def idle_buffers_are_bounded(self) -> None:
        assert 0 <= self.pool.idle_count <= 6

    def teardown(self) -> None:
        self.pool.close()
        assert self.device.allocated_bytes == sum(buffer.bytes for buffer in self.out.values())


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
