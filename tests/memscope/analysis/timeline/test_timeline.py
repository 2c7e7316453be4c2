"""The fold: what belongs to a step, in whatever portions it comes."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memscope import events
from memscope.analysis.summary.residency_map import ResidencyMapFold, find_layer_states
from memscope.analysis.summary.summary import summarize
from memscope.analysis.timeline.timeline import Steps, Timeline
from memscope.events import Kind
from tests.memscope.analysis.build import HEADER, Event, event, fact, fold, make_batch, state
from tests.memscope.analysis.sweeps import run_sweeps

ODD = st.sampled_from((-(2**63), -5, 2**62, 2**63 - 1))
KINDS = st.sampled_from(
    (
        Kind.STEP, Kind.LAYER, Kind.WAIT, Kind.UPLOAD, Kind.EVICT, Kind.POOL_HIT,
        Kind.POOL_MISS, Kind.DEVICE_MALLOC, Kind.DEVICE_FREE, Kind.SAMPLE, Kind.OOM,
        Kind.MARK, Kind.PHASE, Kind.DROPPED, 100,
    )
)  # fmt: skip
NAMES = st.sampled_from(
    (None, "weight_pool", "64x2", "device.allocated_bytes", "pool.idle_bytes", "other")
)


def any_event(odd: st.SearchStrategy[int]) -> st.SearchStrategy[Event]:
    facts = st.sampled_from(
        (
            fact("model", {"layers": 3, "entries_per_layer": 7}),
            fact("model", [1]),
            fact("run.warmup_steps", 1),
            fact("run.warmup_steps", "two"),
            fact("policy", {"policy": "past", "keep": 2}),
            fact("plan", {"layers": -3}),
            fact("run.step_source", "second"),
            fact("run.step_source", "program"),
        )
    )
    rows = st.fixed_dictionaries(
        {
            "t_ns": st.integers(0, 50),
            "kind": KINDS,
            "step": st.integers(-1, 4) | odd,
            "layer": st.integers(-2, 4) | st.sampled_from((2**31 - 1, -(2**31))),
            "name": NAMES,
            "bytes": st.none() | st.integers(0, 99) | odd,
            "duration_ns": st.none() | st.integers(0, 9) | odd,
            "value": st.none() | st.integers(0, 7).map(float) | st.floats(),
        }
    )
    return rows | facts


def same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f"))


def assert_same(one: Timeline, other: Timeline) -> None:
    for column in fields(Steps):
        assert same(getattr(one.steps, column.name), getattr(other.steps, column.name)), column.name
    assert one.series.keys() == other.series.keys()
    for name, series in one.series.items():
        assert same(series.maximum, other.series[name].maximum)
    assert find_layer_states(one) == find_layer_states(other)
    assert one.geometries == other.geometries
    first, second = (summarize(timeline, state()).to_json() for timeline in (one, other))
    first["batches"] = second["batches"]
    assert first == second


@settings(max_examples=150, deadline=None)
@given(st.lists(any_event(st.integers(0, 4)), max_size=25), st.integers(1, 6))
def test_any_split_into_batches_gives_the_same(rows: list[Event], split: int) -> None:
    assert_same(fold(rows), fold(rows, split=split))


@settings(max_examples=150, deadline=None)
@given(st.lists(any_event(ODD), max_size=25), st.integers(1, 25))
def test_hostile_numbers_never_raise(rows: list[Event], split: int) -> None:
    timeline = fold(rows, split=split)
    found = summarize(timeline, state()).to_json()
    values = [metric["value"] for metric in found["metrics"].values()]
    assert all(value is None or math.isfinite(value) for value in values)
    mapped = ResidencyMapFold()
    for start in range(0, len(rows), split):
        mapped.add(make_batch(rows[start : start + split]))
    shares = mapped.result(timeline).shares
    assert np.all(np.isnan(shares) | ((shares >= 0) & (shares <= 1)))


@pytest.mark.parametrize("split", [1, 7, 100])
def test_a_run_is_the_same_in_any_split(split: int) -> None:
    rows = run_sweeps("past", 5, 2, is_prefetching=True, unit="entry")
    assert_same(fold(rows), fold(rows, split=split))


def test_rows_belong_to_the_step_that_closes_after_them() -> None:
    rows = [
        event(Kind.WAIT, 1, step=0, duration_ns=5),
        event(Kind.WAIT, 2, step=1, duration_ns=7),  # ahead of its step
        event(Kind.STEP, 10, step=0, duration_ns=10),
        event(Kind.WAIT, 11, step=1, duration_ns=1),
        event(Kind.WAIT, 12, duration_ns=2),  # of no step: of the one that ends next
        event(Kind.STEP, 20, step=1, duration_ns=9),
        event(Kind.WAIT, 21, step=2, duration_ns=100),
    ]
    steps = fold(rows).steps
    assert steps.step.tolist() == [0, 1]
    assert steps.wait_ns.tolist() == [5, 10]
    assert (steps.start_ns.tolist(), steps.end_ns.tolist()) == ([0, 11], [10, 20])


def test_steps_come_in_the_order_of_their_numbers() -> None:
    rows = [event(Kind.STEP, at, step=step) for at, step in ((10, 2), (20, 0), (30, 1))]
    assert fold(rows).steps.step.tolist() == [0, 1, 2]


def test_an_upload_ahead_is_in_flight_at_the_end_of_the_step_before() -> None:
    rows = run_sweeps("past", 5, 2, is_prefetching=True)
    steps = fold(rows).steps
    assert steps.in_flight_bytes.tolist() == [700] * 5
    assert steps.entries_at_end.tolist() == [15] * 5


def test_what_an_untimed_upload_took_is_not_known() -> None:
    rows = [
        event(Kind.UPLOAD, 1, step=0, layer=0, bytes=5, duration_ns=3, value=7),
        event(Kind.STEP, 2, step=0),
        event(Kind.UPLOAD, 3, step=1, layer=0, bytes=5, value=7),
        event(Kind.STEP, 4, step=1),
    ]
    assert fold(rows).steps.upload_duration_ns.tolist() == [3, -1]


def test_layers_before_the_first_step_has_ended_are_those_now() -> None:
    rows = [
        fact("model", {"layers": 3, "entries_per_layer": 7}),
        event(Kind.UPLOAD, 1, step=0, layer=0, value=7),
        event(Kind.LAYER, 2, step=0, layer=0),
        event(Kind.UPLOAD, 3, step=0, layer=1, value=7),
    ]
    seen = find_layer_states(fold(rows))
    assert (seen.states, seen.step) == (("resident", "in flight", "unused"), None)
    later = [*rows, event(Kind.EVICT, 4, layer=0, value=7, data={"reason": "shutdown"})]
    assert find_layer_states(fold(later)).states == ("evicted", "in flight", "unused")


@pytest.mark.parametrize("layer", [-1, 65_535, 2**31 - 1])
def test_impossible_layers_are_left_out_and_counted(layer: int) -> None:
    rows = [
        event(Kind.UPLOAD, 1, step=0, layer=layer, value=7),
        event(Kind.STEP, 2, step=0),
    ]
    timeline = fold(rows)
    assert timeline.ignored_rows == 1
    assert find_layer_states(timeline).states == ()
    assert any(
        "1 events are ignored by all metrics" in text.text
        for text in summarize(timeline, state()).sentences
    )


def test_readings_beyond_the_bound_are_counted_not_kept() -> None:
    rows = [event(Kind.SAMPLE, at, name=f"reading {at}", value=1.0) for at in range(300)]
    timeline = fold(rows, split=70)
    assert len(timeline.series) == 256
    assert timeline.ignored_rows == 44


def test_rows_whose_step_never_ends_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memscope.analysis.timeline.step_fold.MAX_WAITING_ROWS", 10)
    rows = [event(Kind.WAIT, at, step=0, duration_ns=1) for at in range(30)]
    timeline = fold([*rows, event(Kind.STEP, 40, step=0)], split=1)
    assert timeline.ignored_rows > 0
    assert timeline.steps.waits.tolist() == [30 - timeline.ignored_rows]


def test_a_sample_without_a_value_is_no_reading() -> None:
    rows = [
        event(Kind.SAMPLE, 1, name="a"),
        event(Kind.SAMPLE, 2, name="a", value=float("nan")),
        event(Kind.SAMPLE, 3, name="a", value=4.0),
    ]
    series = fold(rows).series["a"]
    assert (series.readings, series.peak, series.floor, series.latest) == (1, 4, 4, 4)


def test_unknown_kinds_are_counted_by_name() -> None:
    header = type(HEADER)(**{f: getattr(HEADER, f) for f in HEADER.__slots__} | {
        "kinds": (*events.KINDS, "teleport")
    })  # fmt: skip
    timeline = Timeline(header)
    timeline.add(make_batch([event(len(events.KINDS)), event(len(events.KINDS) + 1)]))
    assert timeline.unknown_kinds == {"teleport": 1, f"kind {len(events.KINDS) + 1}": 1}


def test_warmup_is_as_given_else_as_recorded_else_one() -> None:
    said = fact("run.warmup_steps", 2)
    assert fold([event(Kind.STEP)]).warmup_steps == 1
    assert fold([said]).warmup_steps == 2
    assert fold([said], warmup_steps=0).warmup_steps == 0
    assert fold([fact("run.warmup_steps", "many")]).warmup_steps == 1


def test_facts_keep_their_last_value() -> None:
    assert fold([fact("policy", {"keep": 1}), fact("policy", {"keep": 2})]).fact(
        "policy", "keep"
    ) == 2  # fmt: skip


def test_rare_rows_are_kept_as_they_are() -> None:
    rows = [
        event(Kind.MARK, 5, step=1, name="prefill done"),
        event(Kind.PHASE, 9, name="load", duration_ns=4),
        event(Kind.OOM, 10, step=3, bytes=64, data={"scope": "request", "free": 8, "x": True}),
        event(Kind.OOM, 11, bytes=64),
        event(Kind.DROPPED, 12, name="wait", value=40.0, data={"kind": "wait", "rows": 40}),
    ]
    timeline = fold(rows)
    assert (timeline.marks[0].name, timeline.marks[0].t_ns) == ("prefill done", 5)
    assert (timeline.phases[0].start_ns, timeline.phases[0].end_ns) == (5, 9)
    assert timeline.ooms[0].counters == {"free": 8}
    assert timeline.oom_counts == {"engine": 1, "request": 1}
    assert (timeline.dropped, timeline.dropped_rows) == ({"wait": 40}, 40)


def test_steps_of_another_source_are_no_steps_of_the_program() -> None:
    def second(number: int) -> Event:
        return event(Kind.STEP, t_ns=number, step=number, duration_ns=1)

    timeline = fold(
        [
            fact("run.step_source", "second"),
            *map(second, range(3)),
            fact("run.step_source", "program"),
            *map(second, range(3, 8)),
            fact("run.step_source", "program"),
        ]
    )
    assert timeline.warmup_steps == 4
    assert timeline.steps.step.tolist() == [-3, -2, -1, 0, 1, 2, 3, 4]
    assert timeline.measured_steps.step.tolist() == [1, 2, 3, 4]
