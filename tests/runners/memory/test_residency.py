"""The window's edges: prefetch, preload, poison, failures, closing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from memscope.errors import MemscopeError
from memscope.events import Kind
from memscope_runners.memory.device import DeviceOutOfMemory
from memscope_runners.memory.policies import Pinned, make_policy
from tests.runners.memory.windows import (
    ENTRIES,
    HEAD_LAYOUT,
    LAYER_LAYOUT,
    Window,
    assert_same_bits,
)

SLAB = LAYER_LAYOUT.bytes
HEAD = HEAD_LAYOUT.bytes


@pytest.fixture
def upload_threads() -> Callable[[], list[threading.Thread]]:
    """Those that the test began: another's device may not have been collected yet."""
    before = threading.enumerate()

    def find() -> list[threading.Thread]:
        named = [t for t in threading.enumerate() if t.name.startswith("memscope-upload")]
        return [thread for thread in named if thread not in before]

    return find


def samples(window: Window, reading_name: str) -> list[int | None]:
    return [row.bytes for row in window.recorder.of(Kind.SAMPLE) if row.name == reading_name]


def test_upload_stands_before_the_layer_that_uses_it_and_in_its_step():
    rows = Window(6, "past", 2, prefetch=True).run().recorder.rows
    steps_ended: set[int] = set()
    entered: set[tuple[int, int]] = set()
    for row in rows:
        if row.kind == Kind.STEP:
            steps_ended.add(row.step)
        elif row.kind == Kind.LAYER:
            entered.add((row.step, row.layer))
        elif row.kind == Kind.UPLOAD:
            assert row.step not in steps_ended
            assert (row.step, row.layer) not in entered


def test_layer_in_flight_across_the_step_end_is_sampled():
    window = Window(6, "past", 2, prefetch=True).run(3)
    assert samples(window, "residency.in_flight_bytes") == [SLAB] * 3
    in_time = Window(6, "past", 2).run(3)
    assert samples(in_time, "residency.in_flight_bytes") == [0] * 3


def test_upload_ahead_was_issued_while_the_layer_before_ran():
    window = Window(6, "past", 1, prefetch=True)
    window.sweep(0)
    window.residency.begin_step(1)
    window.residency.enter_layer(0)
    before_ns = time.perf_counter_ns()
    window.residency.enter_layer(1)
    upload = [row for row in window.recorder.of(Kind.UPLOAD) if row.step == 1][-1]
    assert upload.layer == 1
    assert upload.at_ns is not None
    assert upload.at_ns < before_ns
    window.close()


def test_layer_uploaded_in_time_is_waited_for_in_full():
    window = Window(6, "past", 6).run(1)
    waits = {row.layer: row.duration_ns for row in window.recorder.of(Kind.WAIT)}
    uploads = {row.layer: row.duration_ns for row in window.recorder.of(Kind.UPLOAD)}
    assert waits == uploads
    assert len(uploads) == 7


def test_finished_upload_ahead_is_not_waited_for():
    window = Window(6, "past", 1, prefetch=True)
    for layer in range(6):
        window.residency.enter_layer(layer)
        window.device.close()  # joins the worker; the next upload starts another
    waited = {row.layer for row in window.recorder.of(Kind.WAIT)}
    assert waited == {0}
    window.close()


def test_worker_starts_with_the_first_upload_ahead_and_ends_on_close(upload_threads):
    window = Window(6, "past", 2, prefetch=True)
    window.residency.begin_step(0)
    assert not upload_threads()
    window.residency.enter_layer(0)
    assert len(upload_threads()) == 1
    window.close()
    assert not upload_threads()


def test_no_worker_without_prefetch(upload_threads):
    window = Window(6, "past", 2).run(close=False)
    assert not upload_threads()
    window.close()


def test_pinned_ring_is_filled_again_as_soon_as_a_layer_has_run():
    window = Window(12, "pinned", 5, prefetch=True)
    policy = make_policy("pinned", 12, 5)
    assert isinstance(policy, Pinned)
    window.run(2, close=False)
    window.residency.begin_step(2)
    for layer in range(12):
        window.residency.enter_layer(layer)
        is_running = layer in policy.streamed  # from one slab of the ring; the other is filled
        assert window.residency.in_flight_bytes == (SLAB if is_running else 2 * SLAB)
        coming = [s for s in policy.streamed if s > layer] + list(policy.streamed)
        rows = [row.layer for row in window.recorder.of(Kind.POOL_HIT)]
        assert rows[-1] == coming[0 if is_running else 1]
    window.close()


@pytest.mark.parametrize("keep", range(1, 31))
def test_pinned_layers_are_spaced_evenly(keep):
    policy = Pinned(30, keep)
    assert len(policy.fixed) == max(keep - 2, 0)
    assert len(policy.fixed) + len(policy.streamed) == 30
    for chosen in (sorted(policy.fixed), policy.streamed):
        gaps = {b - a for a, b in pairwise(chosen)}
        assert len(gaps) <= 2
        assert max(gaps, default=0) - min(gaps, default=0) <= 1


@pytest.mark.parametrize(
    ("policy", "keep", "loaded"),
    [
        ("off", None, 6),
        ("past", 4, 4),
        ("symmetric", 4, 2),
        ("lru", 4, 4),
        ("pinned", 4, 4),
        ("pinned", 1, 1),
    ],
)
@pytest.mark.parametrize("prefetch", [False, True])
def test_preload_uploads_nothing_that_the_window_evicts_unused(policy, keep, loaded, prefetch):
    window = Window(6, policy, keep, prefetch=prefetch)
    assert window.residency.preload() == loaded
    assert window.recorder.count(Kind.UPLOAD) == loaded + 1
    window.run(2)
    used: set[int] = set()
    for row in window.recorder.rows:
        if row.kind == Kind.LAYER:
            used.add(row.layer)
        assert row.kind != Kind.EVICT or row.step != 0 or row.layer in used
    assert window.uploaded_layers(0) == 6
    lazy = Window(6, policy, keep, prefetch=prefetch).run(2)
    assert window.device.peak_bytes == lazy.device.peak_bytes


@pytest.mark.parametrize("unit", ["slab", "entry"])
@pytest.mark.parametrize("allocator", ["pool", "naive"])
def test_weights_used_after_their_eviction_are_poisoned(unit, allocator):
    window = Window(6, "past", 1, allocator, unit)
    kept = window.residency.enter_layer(0)
    assert_same_bits(kept, window.source.expected[0])
    window.residency._evict(0)
    for weight in kept.values():
        assert bool((weight.q == 0x7F).all())
        assert bool(weight.scale.isnan().all())
    window.close()


def test_close_releases_everything_and_says_so():
    window = Window(6, "past", 3, prefetch=True).run(3, close=False)
    assert window.device.allocated_bytes > 0
    before = len(window.recorder.rows)
    window.close()
    rows = window.recorder.rows[before:]
    evicted = [row for row in rows if row.kind == Kind.EVICT]
    assert {row.layer for row in evicted} == {0, 3, 4, 5, 6}  # 0 was in flight, 6 is lm_head
    assert all(row.data == {"reason": "shutdown"} and row.step == -1 for row in evicted)
    assert window.device.allocated_bytes == 0
    assert window.device.malloc_count == window.device.free_count
    assert window.allocator.idle_bytes == 0


def test_close_twice_is_harmless():
    window = Window(6, "past", 3).run(1)
    window.close()
    assert window.device.allocated_bytes == 0


@pytest.mark.parametrize("unit", ["slab", "entry"])
@pytest.mark.parametrize("allocator", ["pool", "naive"])
@pytest.mark.parametrize("prefetch", [False, True])
def test_out_of_memory_has_its_metrics_and_leaves_the_counters_right(unit, allocator, prefetch):
    limit = HEAD + 3 * SLAB + SLAB // 2
    window = Window(6, "past", 4, allocator, unit, prefetch, limit_bytes=limit)
    with pytest.raises(DeviceOutOfMemory) as caught:
        window.run(2)
    metrics = caught.value.metrics()
    assert metrics["free"] == limit - metrics["allocated"] < caught.value.requested
    assert metrics["limit"] == limit
    assert metrics["allocated"] == window.device.allocated_bytes if allocator == "pool" else True
    window.close()
    assert window.device.allocated_bytes == 0
    assert window.device.peak_bytes <= limit
    uploaded = sum(row.bytes or 0 for row in window.recorder.of(Kind.UPLOAD))
    assert uploaded == window.device.copied_bytes == HEAD + 3 * SLAB


def test_exact_limit_fits():
    limit = HEAD + 4 * SLAB
    assert Window(6, "past", 2, limit_bytes=limit).run().device.peak_bytes == limit
    with pytest.raises(DeviceOutOfMemory):
        Window(6, "past", 2, limit_bytes=limit - 1).run()


@pytest.mark.parametrize("unit", ["slab", "entry"])
def test_error_of_the_upload_thread_reaches_the_program(upload_threads, unit):
    window = Window(6, "past", 2, unit=unit, prefetch=True)
    window.source.slabs[3] = window.source.slabs[3][:-256]
    with pytest.raises(ValueError, match="bytes"):
        window.run(1)
    window.close()
    assert window.device.allocated_bytes == 0
    assert not upload_threads()


def test_error_in_flight_is_raised_by_close_after_it_released_all():
    window = Window(6, "past", 2, prefetch=True)
    window.source.slabs[1] = window.source.slabs[1][:-256]
    window.residency.enter_layer(0)
    with pytest.raises(ValueError, match="bytes"):
        window.residency.close()
    assert window.device.allocated_bytes == 0
    window.device.close()


def test_upload_ahead_of_a_step_broken_off_is_emitted_in_that_step():
    window = Window(6, "past", 2, prefetch=True)
    window.residency.begin_step(0)
    window.residency.enter_layer(0)
    window.residency.end_step()
    assert [row.layer for row in window.recorder.of(Kind.UPLOAD)] == [6, 0, 1]
    assert samples(window, "residency.in_flight_bytes") == [0]
    window.close()


def test_sweep_begun_anew_after_a_break_sees_the_right_weights():
    window = Window(6, "symmetric", 2, prefetch=True)
    window.residency.begin_step(0)
    for layer in range(4):
        window.residency.enter_layer(layer)
    window.run(2)
    assert window.device.allocated_bytes == 0


def test_runs_without_a_recorder():
    window = Window(6, "past", 2, prefetch=True)
    window.residency._recorder = None
    for step in range(2):
        window.residency.begin_step(step)
        for layer in range(6):
            assert_same_bits(window.residency.enter_layer(layer), window.source.expected[layer])
        window.residency.end_step()
    window.close()
    assert window.recorder.count(Kind.UPLOAD) == 0


def test_tied_embedding_is_looked_up_in_lm_head():
    window = Window(2, "past", 1)
    ids = torch.tensor([0, 79, 3])
    expected = window.source.expected[-1]["lm_head"].rows(ids)
    torch.testing.assert_close(window.residency.head_rows(ids), expected, equal_nan=True)
    assert window.device.copied_bytes == HEAD
    window.close()


def test_untied_embedding_is_looked_up_in_the_fixed_part():
    window = Window(2, "past", 1)
    window.source.fixed["embedding"] = torch.randn(80, 32)
    ids = torch.tensor([5, 7])
    assert torch.equal(window.residency.head_rows(ids), window.source.fixed["embedding"][ids])
    window.close()


@pytest.mark.parametrize("keep", [0, -1, 7])
def test_keep_outside_the_layers_is_refused(keep):
    with pytest.raises(MemscopeError, match="--keep 1 to 6"):
        make_policy("past", 6, keep)


@pytest.mark.parametrize(("policy", "keep"), [("off", 3), ("past", None), ("newest", 2)])
def test_policy_and_keep_that_do_not_go_together_are_refused(policy, keep):
    with pytest.raises(MemscopeError):
        make_policy(policy, 6, keep)


def test_slab_carries_seven_entries_and_an_entry_one():
    for unit, expected in (("slab", [7.0]), ("entry", [1.0] * ENTRIES)):
        uploads = Window(2, "past", 2, unit=unit).run(1).recorder.of(Kind.UPLOAD)
        assert [row.value for row in uploads if row.layer == 0] == expected
