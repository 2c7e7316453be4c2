"""Each default limit, and any limit on any metric: just under, at and just over.

The defaults are judged on hand-made recordings, among them the four thresholds that memory health
is commonly read by: KV utilisation 70–95 %, cache ratio < 20 %, peak below the card, no lost
request.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest

from memscope.analysis.limits.limits import judge, parse_limit
from memscope.analysis.metrics.metric import Metric
from memscope.analysis.metrics.table import METRICS, metrics
from memscope.events import Kind
from tests.memscope.analysis.build import Event, event, fact, fold
from tests.memscope.analysis.torch_runs import GIB, MIB, run_program

GPU = fact("device.0", {"name": "H200", "kind": "cuda", "total_bytes": 1000})
CONSTANT: Callable[[int], Callable[[int], int]] = lambda size: lambda step: size  # noqa: E731


def held(size: int) -> list[Event]:
    host = fact("device.0", {"name": "host", "kind": "host", "total_bytes": 9999})
    limit = fact("device.0", {"name": "host", "kind": "host", "limit_bytes": 1000})
    return [host, limit, event(Kind.DEVICE_MALLOC, 1, bytes=size)]


def uploads(quarters: int) -> list[Event]:
    """Four steps that upload ``quarters``/4 layers each on average, although all 3 are held."""
    rows = [fact("model", {"layers": 3}), fact("run.warmup_steps", 1)]
    for step in range(5):
        layers = 3 if step == 0 else quarters // 4 + (step <= quarters % 4)
        for layer in range(3):
            if layer < layers:
                if step:
                    rows.append(event(Kind.EVICT, step, step=step, layer=layer, bytes=9))
                rows.append(event(Kind.UPLOAD, step, step=step, layer=layer, bytes=9))
            rows.append(event(Kind.LAYER, step, step=step, layer=layer))
        rows.append(event(Kind.STEP, step, step=step))
    return rows


def takes(hits: int, misses: int) -> list[Event]:
    rows = [event(Kind.STEP, 1, step=0)]
    rows += [event(Kind.POOL_HIT, 2, step=1, name="a")] * hits
    rows += [event(Kind.POOL_MISS, 2, step=1, name="a")] * misses
    return [*rows, event(Kind.STEP, 3, step=1)]


def calls(count: int) -> list[Event]:
    rows = [event(Kind.DEVICE_MALLOC, 0, step=0, bytes=5), event(Kind.STEP, 1, step=0)]
    rows += [event(Kind.DEVICE_MALLOC, 2, step=1, bytes=5)] * count
    return [*rows, event(Kind.STEP, 3, step=1)]


def link(size: int) -> list[Event]:
    """One upload of ``size`` bytes in 1000 ns over a link of 1 GB/s."""
    rows = [GPU, fact("link", {"bytes": 1000, "pinned_bytes_per_s": 1_000_000_000})]
    for step in range(2):
        upload = {"bytes": size, "duration_ns": 1000}
        rows.append(event(Kind.UPLOAD, step, step=step, layer=0, **upload))
        rows.append(event(Kind.STEP, step, step=step, duration_ns=5000))
    return rows


def ooms(count: int) -> list[Event]:
    oom = event(Kind.OOM, 1, bytes=5, data={"scope": "engine"})
    return [fact("run.kind", "q8-decode"), *[oom] * count]


def cached(share: int) -> list[Event]:
    """``share`` per mille of 10 GiB reserved is not allocated."""
    reserved = 10 * GIB
    return run_program(60, CONSTANT(reserved - reserved * share // 1000), CONSTANT(reserved))


def flushes(every: int) -> list[Event]:
    return run_program(60, CONSTANT(GIB), CONSTANT(2 * GIB), flush_every=every)


def requests(lost: int) -> list[Event]:
    rows = [event(Kind.REQUEST_SUBMIT, request, request=request) for request in range(100)]
    for request in range(lost):
        scope = {"scope": "request"}
        rows.append(event(Kind.OOM, 200, request=request, bytes=5, data=scope))
        reason = {"reason": "memory"}
        rows.append(event(Kind.REQUEST_REJECT, 201, request=request, data=reason))
    rows.append(event(Kind.REQUEST_REJECT, 300, request=99, data={"reason": "too long"}))
    return [*rows, event(Kind.REQUEST_FINISH, 301, request=98)]


def blocks(most: int) -> list[Event]:
    """A paged KV cache of 1000 blocks, of which requests hold ``most`` at the peak."""
    return [
        fact("kv", {"blocks": 1000, "block_tokens": 16}),
        event(Kind.KV_BLOCK_ALLOC, 1, request=1, value=300.0),
        event(Kind.KV_BLOCK_ALLOC, 2, request=2, value=float(most - 300)),
        event(Kind.KV_BLOCK_FREE, 3, request=1, value=300.0),
        event(Kind.KV_BLOCK_ALLOC, 4, request=3, value=100.0),
    ]


def growing(a_step: int, level: int = 10 * MIB) -> list[Event]:
    return run_program(
        200, lambda step: level + a_step * step, lambda step: level + GIB + a_step * step
    )


def gap_growing(a_step: int) -> list[Event]:
    return run_program(200, CONSTANT(GIB), lambda step: GIB + 10 * MIB + a_step * step)


def outside_growing(a_step: int) -> list[Event]:
    outside: Callable[[int], int] = lambda step: GIB + 10 * MIB + a_step * step  # noqa: E731
    return run_program(200, CONSTANT(GIB), CONSTANT(GIB), process=outside)


# Each default limit: recordings and the verdicts on them.
CASES: dict[str, list[tuple[list[Event], str]]] = {
    "memory.peak_ratio < 1": [
        (held(949), "pass"),
        (held(950), "warn"),
        (held(999), "warn"),
        (held(1000), "fail"),
        (held(1001), "fail"),
    ],
    "residency.avoidable_uploads <= 2": [
        (uploads(7), "pass"),
        (uploads(8), "pass"),
        (uploads(9), "fail"),
    ],
    "pool.hit_rate >= 0.99": [
        (takes(98, 1), "fail"),
        (takes(99, 1), "pass"),
        (takes(100, 1), "pass"),
    ],
    "driver.calls_per_step == 0": [(calls(0), "pass"), (calls(1), "fail")],
    "upload.link_ratio >= 0.9": [(link(899), "fail"), (link(900), "pass"), (link(901), "pass")],
    "oom.engine_count == 0": [(ooms(0), "pass"), (ooms(1), "fail")],
    "oom.request_rate == 0": [(requests(0), "pass"), (requests(1), "fail")],
    "allocator.cache_ratio <= 0.2": [
        (cached(199), "pass"),
        (cached(200), "pass"),
        (cached(201), "fail"),
    ],
    "allocator.flushes_in_steps == 0": [(flushes(0), "pass"), (flushes(50), "fail")],
    "kv.peak_utilisation >= 0.7": [
        (blocks(699), "fail"),
        (blocks(700), "pass"),
        (blocks(701), "pass"),
    ],
    "kv.peak_utilisation <= 0.95": [
        (blocks(949), "pass"),
        (blocks(950), "pass"),
        (blocks(951), "fail"),
    ],
    "growth.allocated <= 1 KiB": [
        (growing(1023), "pass"),
        (growing(1024), "pass"),
        (growing(1025), "fail"),
    ],
    "growth.reserved_gap <= 1 KiB": [
        (gap_growing(1023), "pass"),
        (gap_growing(1024), "pass"),
        (gap_growing(1025), "fail"),
    ],
    "growth.outside <= 1 KiB": [
        (outside_growing(1023), "pass"),
        (outside_growing(1024), "pass"),
        (outside_growing(1025), "fail"),
    ],
}


def test_every_default_is_tried() -> None:
    defaults = [f"{row.name} {default.limit}" for row in METRICS for default in row.limits]
    assert sorted(CASES) == sorted(defaults)


@pytest.mark.parametrize("limit", CASES)
def test_a_default_just_under_at_and_just_over(limit: str) -> None:
    for rows, expected in CASES[limit]:
        measured = metrics(fold(rows))
        (verdict,) = [each for each in judge(measured) if each.limit == limit]
        assert verdict.verdict == expected, verdict.sentence
        assert bool(verdict.advice) == (expected in ("warn", "fail"))


OPERATORS = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}


@pytest.mark.parametrize("name", [row.name for row in METRICS])
def test_any_metric_with_any_operator(name: str) -> None:
    unit = next(row.unit for row in METRICS if row.name == name)
    for sign, holds in OPERATORS.items():
        for value in (4.999, 5.0, 5.001):
            (verdict, *_) = judge(
                {name: Metric(name, value, unit)}, [parse_limit(f"{name} {sign} 5 {unit}")]
            )
            assert verdict.verdict == ("pass" if holds(value, 5) else "fail"), verdict.line


@pytest.mark.parametrize(
    ("limit", "healthy", "sick"),
    [
        ("kv.peak_utilisation >= 0.7", blocks(800), blocks(400)),
        ("kv.peak_utilisation <= 0.95", blocks(800), blocks(1000)),
        ("allocator.cache_ratio < 0.2", cached(100), cached(200)),
        ("memory.peak_ratio < 1", held(900), held(1000)),
        ("oom.request_rate == 0", requests(0), requests(3)),
    ],
)
def test_the_four_common_thresholds_fail_where_they_should(
    limit: str, healthy: list[Event], sick: list[Event]
) -> None:
    for rows, expected in ((healthy, "pass"), (sick, "fail")):
        assert judge(metrics(fold(rows)), [parse_limit(limit)])[0].verdict == expected


def test_growth_that_comes_to_little_over_the_run_breaks_no_default() -> None:
    """1025 bytes a step from first floor to last, 170 steps: 0.5 % of 33 MiB."""
    for level, expected in ((GIB, "pass"), (34 * MIB, "pass"), (32 * MIB, "fail")):
        measured = metrics(fold(growing(1025, level)))
        limit = parse_limit("growth.allocated <= 1 KiB")
        verdicts = [each for each in judge(measured) if each.metric == limit.metric]
        assert [each.verdict for each in verdicts] == [expected]
        assert judge(measured, [limit])[0].verdict == "fail"


def test_a_program_that_is_watched_and_saw_no_oom_counts_none() -> None:
    watched = fact("probe.oom", {"watches": "torch's out-of-memory observer"})
    assert metrics(fold([watched]))["oom.engine_count"].value == 0
    blind = metrics(fold([fact("probe.oom", {"absent": "an old torch"})]))["oom.engine_count"]
    assert blind.value is None
    assert "an old torch" in (blind.reason or "")


def test_a_request_lost_twice_counts_once() -> None:
    assert metrics(fold(requests(3), split=4))["oom.request_rate"].value == 0.03


def test_requests_that_were_dropped_by_the_recorder_are_no_rate() -> None:
    data = {"kind": "request_submit", "rows": 5}
    rows = [*requests(1), event(Kind.DROPPED, 999, name="x", value=5.0, data=data)]
    assert metrics(fold(rows))["oom.request_rate"].value is None


def test_readings_of_held_blocks_go_before_events() -> None:
    shared = event(Kind.SAMPLE, 2, name="kv.held_blocks", value=900.0)
    assert metrics(fold([*blocks(500), shared]))["kv.peak_utilisation"].value == 0.9


def test_a_kv_cache_of_unknown_size_is_not_measured() -> None:
    metric = metrics(fold(blocks(800)[1:]))["kv.peak_utilisation"]
    assert (metric.value, metric.reason) == (None, "the number of KV blocks is not recorded")


def test_the_peak_of_blocks_is_that_of_all_portions() -> None:
    for split in (0, 1, 3):
        assert metrics(fold(blocks(800), split=split))["kv.peak_utilisation"].value == 0.8


@pytest.mark.parametrize("split", [0, 1, 2])
def test_unused_slots_of_blocks_held_then(split: int) -> None:
    rows = [fact("kv", {"blocks": 1000, "block_tokens": 16})]
    for at, held_blocks, unused in ((1, 10, 16), (3, 20, 64), (5, 5, 40), (7, 0, 0)):
        rows.append(event(Kind.SAMPLE, at, name="kv.held_blocks", value=float(held_blocks)))
        rows.append(event(Kind.SAMPLE, at + 1, name="kv.unused_slots", value=float(unused)))
    found = metrics(fold(rows, split=split))["kv.unused_slot_ratio"].value
    assert found == 64 / (20 * 16)
