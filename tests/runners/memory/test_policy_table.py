"""The table of policies, row by row, from the emitted rows and from the device's own counters."""

from __future__ import annotations

import pytest

from memscope import plan
from memscope.events import Kind
from tests.runners.memory.windows import ENTRIES, HEAD_LAYOUT, LAYER_LAYOUT, Occupancy, Window

EVERY_KEEP = [(6, keep) for keep in range(1, 7)]
KEEPS_OF_30 = [(30, keep) for keep in (29, 20, 15, 12, 4, 1)]
SMALL = [("off", 6, None), *((p, *window) for p in plan.POLICIES[1:] for window in EVERY_KEEP)]
LARGE = [("off", 30, None), *((p, *window) for p in plan.POLICIES[1:] for window in KEEPS_OF_30)]

each_window = pytest.mark.parametrize(("policy", "layers", "keep"), SMALL + LARGE)
each_unit = pytest.mark.parametrize("unit", ["slab", "entry"])
each_allocator = pytest.mark.parametrize("allocator", ["pool", "naive", "static"])
each_prefetch = pytest.mark.parametrize("prefetch", [False, True], ids=["in time", "ahead"])


def uploads_a_step(policy: str, layers: int, keep: int | None) -> int:
    if keep is None:
        return 0
    if keep == layers:  # the window holds everything; `symmetric` still drops what lies ahead
        return max(layers - 2, 0) if policy == "symmetric" else 0
    return {
        "past": layers - keep,
        "symmetric": layers - (keep == layers - 1),
        "lru": layers,
        "pinned": layers if keep <= 2 else layers - keep + 2,
    }[policy]


@pytest.mark.parametrize(("policy", "layers", "keep"), SMALL)
@each_unit
@each_allocator
@each_prefetch
def test_uploads_a_step(policy, layers, keep, unit, allocator, prefetch):
    window = Window(layers, policy, keep, allocator, unit, prefetch).run(3)
    expected = uploads_a_step(policy, layers, keep)
    assert [window.uploaded_layers(step) for step in range(3)] == [layers, expected, expected]
    assert_rows_match_the_device(window)


@each_window
@each_prefetch
def test_pool_makes_no_driver_call_from_third_step(policy, layers, keep, prefetch):
    window = Window(layers, policy, keep, prefetch=prefetch).run(4)
    expected = uploads_a_step(policy, layers, keep)
    assert [window.uploaded_layers(step) for step in range(4)] == [layers, *[expected] * 3]
    assert [window.driver_calls(step) for step in (2, 3)] == [0, 0]
    held = plan.peak_layers(plan.Window(policy, keep, prefetch), layers)
    assert window.device.peak_bytes == held * LAYER_LAYOUT.bytes + HEAD_LAYOUT.bytes
    assert_rows_match_the_device(window)


def assert_rows_match_the_device(window: Window) -> None:
    """After the window is closed."""
    uploaded = sum(row.bytes for row in window.recorder.of(Kind.UPLOAD))
    assert uploaded == window.device.copied_bytes
    assert window.recorder.count(Kind.DEVICE_MALLOC) == window.device.malloc_count
    assert window.recorder.count(Kind.DEVICE_FREE) == window.device.free_count
    assert window.device.allocated_bytes == 0


@pytest.mark.parametrize(("layers", "keep"), EVERY_KEEP + KEEPS_OF_30)
@each_unit
@each_prefetch
def test_past_entries_at_step_end_and_peak(layers, keep, unit, prefetch):
    window = Window(layers, "past", keep, unit=unit, prefetch=prefetch).run(3)
    occupancy = Occupancy.of(window.recorder)
    assert occupancy.at_step_ends == [ENTRIES * keep + 1] * 3
    assert occupancy.peak == ENTRIES * min(2 * keep, layers) + 1


@pytest.mark.parametrize(("layers", "keep"), EVERY_KEEP + KEEPS_OF_30)
@pytest.mark.parametrize("policy", ["symmetric", "lru", "pinned"])
def test_bounded_windows_never_hold_more_than_keep(policy, layers, keep):
    occupancy = Occupancy.of(Window(layers, policy, keep).run().recorder)
    assert occupancy.peak == ENTRIES * keep + 1
    assert occupancy.at_step_ends == [ENTRIES * keep + 1] * 4


@pytest.mark.parametrize("layers", [6, 30])
def test_off_holds_every_entry(layers):
    occupancy = Occupancy.of(Window(layers, "off", prefetch=True).run().recorder)
    assert occupancy.at_step_ends == [ENTRIES * layers + 1] * 4


@pytest.mark.parametrize("keep", [1, 4, 12, 16, 20, 29])
@each_prefetch
def test_none_by_entry_either_under_past(keep, prefetch):
    window = Window(30, "past", keep, unit="entry", prefetch=prefetch).run(4)
    assert [window.driver_calls(step) for step in (2, 3)] == [0, 0]


@each_unit
@each_prefetch
@pytest.mark.parametrize("keep", range(1, 7))
def test_naive_makes_two_driver_calls_a_buffer_moved(keep, unit, prefetch):
    window = Window(6, "past", keep, "naive", unit, prefetch).run(5, close=False)
    calls = 2 * (6 - keep) * (ENTRIES if unit == "entry" else 1)
    assert [window.driver_calls(step) for step in (2, 3, 4)] == [calls] * 3
    window.close()


@pytest.mark.parametrize("policy", ["past", "symmetric", "lru"])
def test_prefetch_adds_only_the_bytes_in_flight(policy):
    in_time, ahead = (Window(30, policy, 4, prefetch=prefetch).run() for prefetch in (False, True))
    assert Occupancy.of(ahead.recorder).peak == Occupancy.of(in_time.recorder).peak
    assert ahead.device.peak_bytes - in_time.device.peak_bytes == LAYER_LAYOUT.bytes


@each_unit
@each_prefetch
@pytest.mark.parametrize("policy", plan.POLICIES)
def test_static_makes_its_driver_calls_before_the_first_step(policy, unit, prefetch):
    keep = None if policy == "off" else 4
    window = Window(6, policy, keep, "static", unit, prefetch)
    allocated = window.device.allocated_bytes
    window.run(4, close=False)
    assert [window.driver_calls(step) for step in range(4)] == [0] * 4
    assert window.device.allocated_bytes == window.device.peak_bytes == allocated
    assert window.recorder.count(Kind.POOL_MISS) == 0
    window.close()
    assert window.device.allocated_bytes == 0


def test_symmetric_overflows_the_pool_by_entry():
    window = Window(30, "symmetric", 25, unit="entry").run(close=False)
    overflows = window.recorder.count(Kind.POOL_OVERFLOW, step=3)
    assert overflows == ENTRIES * 25 - 128  # the whole window goes as layer 0 is entered
    assert window.recorder.count(Kind.DEVICE_FREE, step=3) == overflows
    assert window.recorder.count(Kind.DEVICE_MALLOC, step=3) == overflows
    assert window.device.free_count == window.recorder.count(Kind.POOL_OVERFLOW)
    window.close()
