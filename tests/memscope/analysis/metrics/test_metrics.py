"""Metrics and the sentences about them."""

from __future__ import annotations

import json

import pytest

from memscope.analysis.metrics.table import METRICS, metrics
from memscope.analysis.summary.residency_map import MAX_COLUMNS, ResidencyMapFold
from memscope.analysis.summary.summary import summarize
from memscope.analysis.timeline.timeline import Timeline
from memscope.events import Kind
from memscope.plan import Needs, Plan, Window
from tests.memscope.analysis.build import Event, event, fact, fold, make_batch, state
from tests.memscope.analysis.sweeps import SLAB_BYTES, run_sweeps

HOST = fact("device.0", {"name": "host", "kind": "host", "total_bytes": 1000, "limit_bytes": 200})


def value(rows: list[Event], name: str) -> float | None:
    return metrics(fold(rows))[name].value


def sentences(rows: list[Event]) -> str:
    return "\n".join(map(str, summarize(fold(rows), state()).sentences))


def test_an_empty_recording_measures_nothing_and_calls_nothing_healthy() -> None:
    summary = summarize(fold([]), state())
    assert {metric.value for metric in summary.metrics.values()} == {None}
    assert {verdict.verdict for verdict in summary.verdicts} <= {"not measured", "not applicable"}
    assert all(metric.reason for metric in summary.metrics.values())
    assert "No step has ended" in summary.sentences[0].text


def test_peak_ignores_freed_blocks() -> None:
    rows = [
        HOST,
        event(Kind.DEVICE_MALLOC, 1, bytes=100),
        event(Kind.DEVICE_FREE, 2, bytes=100),
        event(Kind.DEVICE_MALLOC, 3, bytes=60),
    ]
    assert value(rows, "memory.peak_bytes") == 100
    assert value(rows, "memory.peak_ratio") == 0.5


def test_peak_takes_the_devices_own_register_where_it_is_higher() -> None:
    sample = event(Kind.SAMPLE, 4, name="device.peak_bytes", bytes=150)
    assert (
        value([HOST, event(Kind.DEVICE_MALLOC, 1, bytes=100), sample], "memory.peak_bytes") == 150
    )


def test_a_gpus_peak_without_torchs_counters_is_not_measured() -> None:
    gpu = fact("device.0", {"name": "H200", "kind": "cuda", "total_bytes": 1000})
    rows = [gpu, event(Kind.DEVICE_MALLOC, 1, bytes=100)]
    assert value(rows, "memory.peak_bytes") is None
    rows.append(event(Kind.SAMPLE, 2, name="torch.reserved_bytes", bytes=40))
    assert value(rows, "memory.peak_bytes") == 140


def test_a_gpus_peak_takes_torchs_peak_register() -> None:
    gpu = fact("device.0", {"name": "H200", "kind": "cuda", "total_bytes": 1000})
    rows = [gpu, event(Kind.DEVICE_MALLOC, 1, bytes=100)]
    rows.append(event(Kind.SAMPLE, 2, name="torch.reserved_bytes", bytes=40))
    rows.append(event(Kind.SAMPLE, 3, name="torch.peak_reserved_bytes", bytes=90))
    assert value(rows, "memory.peak_bytes") == 190


def uploads(*durations_ns: int | None, rate: int = 1_000_000_000) -> list[Event]:
    """Steps of one upload of 1000 bytes each, on a GPU whose link is measured."""
    rows = [
        fact("device.0", {"name": "H200", "kind": "cuda", "total_bytes": 1000}),
        fact("link", {"copy_bytes": [1000], "pinned_bytes_per_s": rate}),
    ]
    for step, duration_ns in enumerate(durations_ns):
        timed = {"bytes": 1000, "duration_ns": duration_ns}
        rows.append(event(Kind.UPLOAD, step, step=step, layer=0, **timed))
        rows.append(event(Kind.STEP, step, step=step, duration_ns=5000))
    return rows


def test_link_ratio_is_the_rate_of_timed_uploads_after_warmup() -> None:
    assert value(uploads(9, 1500, None, 2500), "upload.link_ratio") == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (uploads(9, 1000, rate=0), "not recorded"),
        (uploads(9, None), "not timed"),
        (uploads(9), "warm-up"),
        (uploads()[:1], "no weight upload"),
    ],
)
def test_link_ratio_says_what_is_missing(rows: list[Event], reason: str) -> None:
    metric = metrics(fold(rows))["upload.link_ratio"]
    assert metric.value is None
    assert reason in (metric.reason or "")


def test_waits_of_untimed_uploads_are_not_zero() -> None:
    assert value(uploads(9, None), "step.wait_ratio") is None
    assert value(uploads(9, 1000), "step.wait_ratio") == 0


def test_calls_that_torch_makes_for_weights_are_not_zero() -> None:
    rows = run_sweeps("past", 5, 2)
    assert value(rows, "driver.calls_per_step") == 0
    rows[3] = fact("policy", {"policy": "past", "keep": 2, "allocator": "torch"})
    assert value(rows, "driver.calls_per_step") is None


def test_nothing_of_a_host_is_a_gpu_metric() -> None:
    found = metrics(fold(run_sweeps("past", 5, 2)))
    assert "host" in (found["upload.link_ratio"].reason or "")
    assert not found["allocator.cache_ratio"].is_applicable


def test_a_host_metric_is_of_any_program_and_never_of_a_device() -> None:
    sizes = [event(Kind.SAMPLE, at, name="host.rss_bytes", bytes=n) for at, n in ((1, 7), (2, 5))]
    found = metrics(fold(sizes))
    assert found["host.peak_bytes"].value == 7
    assert found["memory.peak_bytes"].value is None
    missing = metrics(fold([fact("probe.host", {"stopped": "no /proc"})]))["host.peak_bytes"]
    assert (missing.value, missing.reason) == (None, "host.rss_bytes is not sampled: no /proc")


def test_durations_are_medians_after_warmup() -> None:
    rows = [fact("run.warmup_steps", 1), event(Kind.UPLOAD, 0, step=0, layer=0)]
    for step, duration in enumerate((90_000_000, 4_000_000, 8_000_000, 6_000_000)):
        rows.append(event(Kind.WAIT, 1, step=step, duration_ns=duration // 4))
        rows.append(event(Kind.STEP, 2, step=step, duration_ns=duration))
    assert value(rows, "step.duration_ms") == 6
    assert value(rows, "step.wait_ratio") == 0.25


def test_steps_of_warmup_alone_measure_nothing() -> None:
    found = metrics(fold(run_sweeps("past", 5, 2, steps=2)))
    assert found["residency.uploads_per_step"].reason == "no step has ended after warm-up"
    assert found["driver.calls_per_step"].value is None
    assert found["residency.entries_at_step_end"].value == 15


def test_metrics_of_dropped_rows_are_not_measured() -> None:
    dropped = event(Kind.DROPPED, 9, name="x", value=5.0, data={"kind": "upload", "rows": 5})
    rows = [*run_sweeps("past", 5, 2), dropped]
    assert value(rows, "residency.uploads_per_step") is None
    assert value(rows, "driver.calls_per_step") == 0
    assert "5 events came faster" in sentences(rows)


def test_hit_rate_by_geometry() -> None:
    rows = [
        fact("run.warmup_steps", 1),
        event(Kind.POOL_MISS, 1, step=0, name="a"),
        event(Kind.STEP, 2, step=0),
        event(Kind.POOL_HIT, 3, step=1, name="a"),
        event(Kind.POOL_HIT, 4, step=1, name="b"),
        event(Kind.POOL_MISS, 5, step=1, name="b"),
        event(Kind.STEP, 6, step=1),
    ]
    assert value(rows, "pool.hit_rate") == pytest.approx(2 / 3)
    assert value(rows, "pool.hit_rate[a]") == 1
    assert value(rows, "pool.hit_rate[b]") == 0.5


def test_oom_counts_tell_engine_from_request() -> None:
    rows = [
        event(Kind.REQUEST_SUBMIT, 1, request=1),
        event(Kind.REQUEST_SUBMIT, 2, request=2),
        event(Kind.OOM, 3, bytes=9, data={"scope": "request"}),
        event(Kind.OOM, 4, bytes=9, data={"scope": "engine", "free": 1}),
    ]
    assert value(rows, "oom.engine_count") == 1
    assert value(rows, "oom.request_rate") == 0.5


def test_a_run_that_could_report_an_oom_and_did_not_counts_none() -> None:
    assert value([fact("run.kind", "q8-decode")], "oom.engine_count") == 0
    assert value([event(Kind.MARK, 1, name="x")], "oom.engine_count") is None


def test_every_metric_has_a_unit_a_definition_and_one_name() -> None:
    assert len({row.name for row in METRICS}) == len(METRICS)
    for row in METRICS:
        assert row.unit
        assert row.definition
        assert row.direction in ("", "lower", "higher")


@pytest.mark.parametrize(("keep", "is_said"), [(2, False), (3, True), (5, True), (6, False)])
def test_a_keep_of_half_the_layers_saves_no_peak(keep: int, is_said: bool) -> None:
    text = sentences(run_sweeps("past", 6, keep))
    assert (f"keep {keep} of 6 does not lower the peak" in text) == is_said


def test_two_layers_have_no_smaller_keep() -> None:
    text = sentences(run_sweeps("past", 2, 1))
    assert "keep 1 of 2 does not lower the peak" in text
    assert "A keep of" not in text


def test_what_fits_needs_no_window() -> None:
    plan = Plan(Needs(6, SLAB_BYTES, 90), Window("past", 2), limit_bytes=1 << 20)
    rows = [fact("plan", plan.facts()), *run_sweeps("past", 6, 2)]
    assert "save 100 ns per step, the time spent waiting for 4 layers" in sentences(rows)
    small = fact("device.0", {"name": "host", "kind": "host", "limit_bytes": 2000})
    assert "--policy off" not in sentences([*rows, small])
    assert "--policy off" not in sentences(run_sweeps("off", 6, 6))


@pytest.mark.parametrize(("policy", "keep"), [("past", 2), ("symmetric", 4), ("lru", 4)])
def test_an_oom_says_what_was_asked_and_what_fits(policy: str, keep: int) -> None:
    plan = Plan(Needs(6, 100, 50), Window(policy, 5), limit_bytes=500)
    metrics = {"scope": "engine", "free": 50, "allocated": 450, "limit": 500}
    rows = [fact("plan", plan.facts()), event(Kind.OOM, 3, step=1, bytes=100, data=metrics)]
    text = sentences(rows)
    assert "Out of memory in step 1: 100 B requested, 50 B free, 450 B allocated" in text
    assert f"keep ≤ {keep} fits under --policy {policy}" in text


def test_a_stopped_recorder_and_unknown_kinds_are_said() -> None:
    rows = [fact("recorder.stopped", {"reason": "No space left"}), event(60), event(60)]
    text = sentences(rows)
    assert "stopped before the program did: No space left" in text
    assert "2 kind 60" in text


def test_json_has_no_number_that_json_lacks() -> None:
    rows = [fact("odd", {"a": float("nan"), "b": [float("inf"), 1]}), *run_sweeps("past", 5, 2)]
    text = json.dumps(summarize(fold(rows), state()).to_json(), allow_nan=False)
    assert json.loads(text)["facts"]["odd"] == {"a": None, "b": [None, 1]}


def test_json_has_the_shape_that_is_promised() -> None:
    found = summarize(fold(run_sweeps("past", 5, 2)), state("cut")).to_json()
    assert found["state"] == "cut"
    assert found["metrics"]["residency.uploads_per_step"] == {"value": 3.0, "unit": "layers"}
    assert found["metrics"]["upload.link_ratio"]["value"] is None
    assert {"limit", "value", "verdict", "reason", "advice"} <= found["limits"][0].keys()


def map_of(rows: list[Event], timeline: Timeline, split: int) -> ResidencyMapFold:
    mapped = ResidencyMapFold()
    for start in range(0, len(rows), split):
        mapped.add(make_batch(rows[start : start + split]))
    return mapped


@pytest.mark.parametrize("unit", ["slab", "entry"])
def test_the_map_shows_which_layers_a_step_had_to_upload(unit: str) -> None:
    rows = run_sweeps("past", 5, 2, steps=4, unit=unit, is_prefetching=True)
    timeline = fold(rows)
    found = map_of(rows, timeline, 13).result(timeline)
    assert found.first_step.tolist() == found.last_step.tolist() == [0, 1, 2, 3]
    assert found.shares[:, 0].tolist() == [1] * 5
    assert found.shares[:, 2].tolist() == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("split", [400, 7])
def test_a_long_run_shares_its_columns(split: int) -> None:
    rows = [fact("model", {"layers": 2, "entries_per_layer": 7})]
    for step in range(1500):
        if step % 2:
            rows.append(event(Kind.UPLOAD, step, step=step, layer=1, value=7))
        rows.append(event(Kind.STEP, step, step=step))
    timeline = fold(rows)
    found = map_of(rows, timeline, split).result(timeline)
    assert found.width == 4
    assert len(found) == 375 <= MAX_COLUMNS
    assert set(found.shares[1].tolist()) == {0.5}
    assert set(found.shares[0].tolist()) == {0}
