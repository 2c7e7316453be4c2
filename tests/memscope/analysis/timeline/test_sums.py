"""Metrics over thinned steps: the same where sums tell all that they need, else not measured."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from memscope.analysis.metrics.table import metrics
from memscope.analysis.summary.residency_map import ResidencyMapFold, find_layer_states
from memscope.analysis.summary.summary import summarize
from memscope.analysis.timeline.timeline import Timeline
from memscope.events import Kind
from memscope.facts import Fact
from memscope.reader.scanner import Batch
from memscope.recorder.step_sums import LastMoves, layer_ranges, thin
from tests.memscope.analysis.build import HEADER, Event, event, fact, fold, make_batch, state
from tests.memscope.analysis.sweeps import run_sweeps

BY_SUMS = (
    "residency.uploads_per_step",
    "pool.hit_rate",
    "driver.calls_per_step",
    "step.duration_ms",
    "step.wait_ratio",
    "pool.idle_bytes",
)


def thinned(rows: list[Event], *, size: int = 50) -> list[Batch]:
    """Batches of ``size`` events, thinned one by one: steps are cut wherever they are."""
    moves = LastMoves()
    records = [make_batch(rows[at : at + size]).record for at in range(0, len(rows), size)]
    return [
        Batch(thin(record, moves), number, is_thinned=True)
        for number, record in enumerate(records, 1)
    ]


def read(batches: list[Batch]) -> Timeline:
    timeline = Timeline(HEADER)
    for batch in batches:
        timeline.add(batch)
    return timeline


@pytest.mark.parametrize("policy", ["past", "symmetric", "pinned", "lru"])
@pytest.mark.parametrize("size", [7, 50, 10_000])
def test_what_sums_tell_is_as_it_was(policy: str, size: int) -> None:
    rows = run_sweeps(policy, 9, 3)
    whole, thin_ones = fold(rows), read(thinned(rows, size=size))
    found, expected = metrics(thin_ones), metrics(whole)
    for name in BY_SUMS:
        assert found[name].value == expected[name].value, name
    assert thin_ones.counts == {**whole.counts, "dropped": thin_ones.counts["dropped"]}
    assert thin_ones.geometries == whole.geometries
    for column in ("uploads", "upload_bytes", "pool_hits", "pool_returns", "evict_bytes"):
        ours, theirs = getattr(thin_ones.steps, column), getattr(whole.steps, column)
        assert ours.tolist() == theirs.tolist(), column


def test_what_sums_do_not_tell_is_not_measured() -> None:
    timeline = read(thinned(run_sweeps("past", 9, 3)))
    found = metrics(timeline)
    for name in ("residency.peak_layers", "residency.resident_bytes", "residency.held_bytes"):
        assert found[name].value is None
        assert "sums" in (found[name].reason or "")
    assert find_layer_states(timeline).states == ()
    assert "sums per step" in "\n".join(map(str, summarize(timeline, state()).sentences))


def test_the_map_of_uploads_is_as_it_was() -> None:
    rows = run_sweeps("past", 9, 3)
    maps = []
    for batches in ([make_batch(rows)], thinned(rows)):
        folded = ResidencyMapFold()
        for batch in batches:
            folded.add(batch)
        maps.append(folded.result(fold(rows)))
    assert np.array_equal(maps[0].shares, maps[1].shares, equal_nan=True)


def test_rows_outside_of_steps_count_for_the_step_that_ends_next() -> None:
    rows = [
        event(Kind.DEVICE_MALLOC, 1, name="a", bytes=5),
        event(Kind.STEP, 2, step=0),
        event(Kind.DEVICE_MALLOC, 3, name="a", bytes=7),
        event(Kind.DEVICE_FREE, 4, name="a", bytes=5),
        event(Kind.STEP, 5, step=1),
    ]
    for size in (1, 2, 5):
        timeline = read(thinned(rows, size=size))
        assert timeline.steps.device_mallocs.tolist() == [1, 1]
        assert timeline.steps.device_frees.tolist() == [0, 1]
        assert (timeline.driver.bytes, timeline.driver.calls) == (7, 3)


def test_a_segment_without_those_before_it_goes_on_from_what_was_held() -> None:
    head = {"number": 4, "begins_ns": 9, "driver": {"weight_pool": [100, 2], "kv": [50, 1]}}
    host = fact("device.0", {"name": "host", "kind": "host", "total_bytes": 1000})
    rows = [
        fact(Fact.SEGMENT, head),
        host,
        event(Kind.DEVICE_FREE, 10, name="weight_pool", bytes=40),
    ]
    timeline = fold(rows)
    assert (timeline.driver.bytes, timeline.pool_driver.bytes) == (110, 60)
    assert metrics(timeline)["memory.peak_bytes"].value is None
    rows.append(event(Kind.SAMPLE, 11, name="device.peak_bytes", bytes=170))
    assert metrics(fold(rows))["memory.peak_bytes"].value == 170


def readings(seconds: int) -> list[Event]:
    """Two readings, ten times a second; one has its most and least in the middle of somewhere."""
    sizes = np.random.default_rng(5).integers(100, 200, seconds * 10)
    sizes[33], sizes[seconds * 10 - 44] = 900, 1
    return [
        event(Kind.SAMPLE, number * 100_000_000 + at, name=name, bytes=int(size) * factor)
        for number, size in enumerate(sizes)
        for at, (name, factor) in enumerate(
            (("torch.allocated_bytes", 1), ("torch.reserved_bytes", 2))
        )
    ]


def test_peaks_floors_and_pairs_of_readings_outlive_thinning() -> None:
    rows = readings(60)
    whole, left = fold(rows), read(thinned(rows, size=400))
    for name in ("torch.allocated_bytes", "torch.reserved_bytes"):
        for extreme in ("peak", "floor", "latest"):
            expected = getattr(whole.series[name], extreme)
            assert getattr(left.series[name], extreme) == expected
    assert left.series["torch.allocated_bytes"].readings < len(rows) / 2 / 5
    gap = left.counters[0].gap
    assert gap is not None
    assert (gap.floor, gap.peak) == (1, 900), "readings of one moment stay together"
    assert left.counters[0].cache_ratio is None, "a median of chosen readings is no median"
    assert left.counts["sample"] == len(rows)


def test_percentiles_are_of_the_part_that_is_there_in_full() -> None:
    old = readings(60)
    new = [
        event(Kind.SAMPLE, 10**11 + number, name="torch.allocated_bytes", bytes=50)
        for number in range(9)
    ]
    timeline = read([*thinned(old), make_batch(new)])
    (allocated,) = timeline.readings_of("torch.allocated_bytes").values()
    assert (len(allocated.inside), allocated.inside.percentile(0.5)) == (9, 50)
    assert allocated.series.peak == 900
    (reserved,) = timeline.readings_of("torch.reserved_bytes").values()
    assert len(reserved.inside) == 0


def test_rare_rows_stay_as_they_were() -> None:
    rows = [
        fact("model", {"layers": 3}),
        event(Kind.OOM, 1, bytes=5, data={"scope": "engine"}),
        event(Kind.MARK, 2, name="here"),
        event(Kind.PHASE, 3, name="load", duration_ns=2),
        event(Kind.ALLOCATOR_FLUSH, 4, data={"caller": "x.py:3"}),
        event(Kind.REQUEST_SUBMIT, 5, request=1),
        event(Kind.DEVICE_MALLOC, 6, device=0, bytes=9, name="cublas"),
    ]
    batch = make_batch(rows).record
    assert thin(batch, LastMoves()).equals(batch)


@pytest.mark.parametrize(
    ("layers", "ranges"),
    [([], []), ([4], [[4, 4]]), ([2, 0, 1, 5, 6], [[0, 2], [5, 6]]), ([3, 3, 4], [[3, 4], [3, 3]])],
)
def test_layers_as_ranges(layers: list[int], ranges: list[list[int]]) -> None:
    assert layer_ranges(np.array(layers, dtype=np.int64)) == ranges


def test_a_layer_uploaded_in_parts_is_uploaded_once() -> None:
    upload = [event(Kind.UPLOAD, at, step=1, layer=at // 7, name=str(at % 7)) for at in range(14)]
    again = [event(Kind.EVICT, 20, step=1, layer=0), event(Kind.UPLOAD, 21, step=1, layer=0)]
    rows = [*upload, *again, event(Kind.STEP, 30, step=1)]
    assert read(thinned(rows, size=5)).steps.uploads.tolist() == [3]
    assert isinstance(make_batch(rows).record, pa.RecordBatch)
