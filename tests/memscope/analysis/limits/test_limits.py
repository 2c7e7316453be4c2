"""Limits: how they are written, what they say at, under and over, and what they exit with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memscope.analysis.limits.limits import (
    Verdict,
    default_limits,
    exit_code,
    judge,
    override,
    parse_limit,
    parse_limits,
    run_exit_code,
)
from memscope.analysis.metrics.metric import Metric
from memscope.analysis.metrics.table import METRICS
from memscope.errors import MemscopeError
from tests.memscope.analysis.build import state


def metric(name: str, value: float | None, **fields: object) -> dict[str, Metric]:
    unit = next(row.unit for row in METRICS if row.name == name.partition("[")[0])
    return {name: Metric(name, value, unit, **fields)}  # type: ignore[arg-type]


def named(text: str, found: dict[str, Metric]) -> list[Verdict]:
    return [verdict for verdict in judge(found, [parse_limit(text)]) if verdict.is_named]


@pytest.mark.parametrize(
    ("operator", "under", "at", "over"),
    [
        ("<=", "pass", "pass", "fail"),
        ("<", "pass", "fail", "fail"),
        (">=", "fail", "pass", "pass"),
        (">", "fail", "fail", "pass"),
        ("==", "fail", "pass", "fail"),
        ("!=", "pass", "fail", "pass"),
    ],
)
def test_each_operator_at_just_under_and_just_over(
    operator: str, under: str, at: str, over: str
) -> None:
    for value, verdict in ((1023, under), (1024, at), (1025, over)):
        found = named(f"memory.peak_bytes {operator} 1 KiB", metric("memory.peak_bytes", value))
        assert [each.verdict for each in found] == [verdict], value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("memory.peak_bytes <= 2 GiB", 2 * 2**30),
        ("memory.peak_bytes<=2GB", 2e9),
        ("memory.peak_bytes <= 1024", 1024),
        ("memory.peak_bytes <= 1024 B", 1024),
        ("memory.peak_bytes > 0", 0),
        ("memory.peak_bytes <= 2 GIB", 2 * 2**30),
        ("memory.peak_bytes <= 2 gb", 2e9),
        ("allocator.cache_ratio <= 20 %", 0.2),
        ("allocator.cache_ratio <= 0.2", 0.2),
        ("step.duration_ms < 40", 40),
        ("step.duration_ms < 0.04 s", 40),
        ("memory.time_until_full_s > 2 min", 120),
        ("residency.uploads_per_step == 26 layers", 26),
        ("  driver.calls_per_step  ==  0 ", 0),
        ("growth.allocated <= 1 KiB", 1024),
        ("growth.allocated <= 1 KiB/step", 1024),
        ("growth.allocated >= -1 KiB", -1024),
        ("memory.peak_bytes <= 3 bytes", 3),
        ("torch.reserved_bytes.p95 <= 6 GiB", 6 * 2**30),
        ("torch.reserved_bytes[cuda:1].peak<=6GiB", 6 * 2**30),
        ("torch.reserved_bytes.growth <= 2 KiB", 2048),
        ("torch.allocated_bytes.peak/torch.reserved_bytes.peak >= 80 %", 0.8),
        ("my.own_s.p95 <= 30 ms", 0.03),
        ("my.own.growth <= 1 KiB", 1024),
        ("my.own.growth <= 1 KiB/s", 1024),
        ("my.own.growth <= 0.1 a step", 0.1),
        ("loss.end <= 3", 3),
    ],
)
def test_values_carry_the_units_of_their_metric(text: str, value: float) -> None:
    assert parse_limit(text).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        ("1 KiB", "bytes/step"),
        ("1 KiB/step", "bytes/step"),
        ("1 KiB/s", "bytes/s"),
        ("3 layers", "layers/step"),
        ("0.1", "a step"),
        ("0.1 a second", "a second"),
    ],
)
def test_growth_of_ones_own_reading_is_a_step(value: str, unit: str) -> None:
    assert parse_limit(f"my.own.growth <= {value}").unit == unit


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("memory.peak_byte <= 1", "Did you mean memory.peak_bytes"),
        ("hit_rate >= 1", "pool.hit_rate"),
        ("zzz <= 1", "check --list"),
        ("memory.peak_bytes <= 2 ms", "measured in bytes, not in 'ms'"),
        ("step.duration_ms <= 2 GiB", "measured in ms, not in 'GiB'"),
        ("pool.hit_rate >= 2 layers", "measured in ratio"),
        ("memory.peak_bytes <=", "measured in bytes"),
        ("memory.peak_bytes <= many", "not in 'many'"),
        ("memory.peak_bytes =< 2", "is not a limit"),
        ("memory.peak_bytes", "has no default limit"),
        ("", "is not a limit"),
        ("<= 2", "is not a limit"),
        ("driver.calls_per_step == nan", "not in 'nan'"),
        ("memory.peak_bytes <= 1e400 B", "Write a finite number"),
        ("memory.peak_bytes <= 1e308 TiB", "Write a finite number"),
        ("memory.peak_bytes.p95 <= 1", "is a metric and has only one value"),
        ("torch.reserved_bytes <= 1", "Choose a statistic: torch.reserved_bytes.peak"),
        ("torch.reservd_bytes.peak <= 1", "Did you mean torch.reserved_bytes.peak"),
        ("torch.reserved_bytes.peek <= 1", "Did you mean torch.reserved_bytes.peak"),
        ("torch.reserved_bytes.peak <= 2 ms", "measured in bytes, not in 'ms'"),
        ("torch.device_mallocs.end <= 2 GiB", "measured in plain numbers, not in 'GiB'"),
        ("torch.reserved_bytes[gpu].peak <= 1", "'gpu' in torch.reserved_bytes[gpu].peak is no"),
        ("torch.reserved_bytes[cuda:0] <= 1", "is a reading"),
        ("torch.reserved_bytes.peak", "has no default limit"),
        ("kv.nothing.peak <= 1", "There is no reading 'kv.nothing'"),
        ("memory.peak_bytes / pool.hit_rate <= 1", "Divide two values of the same unit"),
        ("a.b.peak / c.d.peak / e.f.peak <= 1", "more than one /"),
        ("memory.peak_bytes / <= 1", "A metric is missing"),
        ("memory.peak_bytes / memory.peak_bytes <= 1 GiB", "measured in ratio, not in 'GiB'"),
        ("growth.allocated <= 1 ms", "<= 1 KiB"),
        ("memory.peak_bytes <= 2 Gb", "'2 Gb' is in bits. Write GB or GiB"),
        ("my.own_bytes.peak <= 2 Kib", "Write KB or KiB"),
        ("memory.peak_bytes > -2 GiB", "is a size, and a size is never negative. Write it like"),
    ],
)
def test_bad_limits_say_what_to_write(text: str, words: str) -> None:
    with pytest.raises(MemscopeError) as caught:
        parse_limit(text)
    assert words in str(caught.value)
    assert caught.value.next_step


def test_a_bare_metric_takes_its_default() -> None:
    verdicts = named("driver.calls_per_step", metric("driver.calls_per_step", 2))
    assert [(each.limit, each.verdict) for each in verdicts] == [
        ("driver.calls_per_step == 0", "fail")
    ]


def test_a_default_may_be_several_limits() -> None:
    verdicts = named("kv.peak_utilisation", metric("kv.peak_utilisation", 0.97))
    assert [each.verdict for each in verdicts] == ["pass", "fail"]


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.94, "pass"), (0.95, "warn"), (0.999, "warn"), (1.0, "fail")]
)
def test_the_warn_level_of_a_default(value: float, verdict: str) -> None:
    found = judge(metric("memory.peak_ratio", value))
    assert next(each for each in found if each.metric == "memory.peak_ratio").verdict == verdict
    assert named("memory.peak_ratio < 1", metric("memory.peak_ratio", 0.96))[0].verdict == "pass"


def test_each_metric_has_defaults_that_can_be_read_and_says_what_to_do() -> None:
    for row in METRICS:
        assert len(default_limits(row)) == len(row.limits)
        for text in (row.advice, row.definition, row.moment, row.applies):
            assert text, row.name


def test_a_missing_value_is_a_verdict_with_its_reason() -> None:
    found = metric("pool.hit_rate", None, reason="no pool", is_applicable=False)
    assert [(each.verdict, each.reason) for each in named("pool.hit_rate >= 1", found)] == [
        ("not applicable", "no pool")
    ]
    found = metric("pool.hit_rate", None, reason="no step")
    assert named("pool.hit_rate >= 1", found)[0].verdict == "not measured"


def test_one_geometry_can_be_limited() -> None:
    found = metric("pool.hit_rate[64x2]", 0.5)
    assert named("pool.hit_rate[64x2] >= 0.9", found)[0].verdict == "fail"
    assert named("pool.hit_rate[9x9] >= 0.9", found)[0].verdict == "not measured"


def test_defaults_stand_beside_named_limits_but_not_twice() -> None:
    found = metric("driver.calls_per_step", 3) | metric("oom.engine_count", 0)
    verdicts = judge(found, [parse_limit("driver.calls_per_step <= 5")])
    assert [each.is_named for each in verdicts if each.metric == "driver.calls_per_step"] == [True]
    assert [each.is_named for each in verdicts if each.metric == "oom.engine_count"] == [False]


def test_bad_limits_name_where_they_stand() -> None:
    with pytest.raises(MemscopeError, match=r"^ci\.toml: There is no metric 'zzz'"):
        parse_limits(["oom.engine_count == 0", "zzz <= 1"], "ci.toml")


def test_nearer_limits_take_the_place_of_those_on_the_same_metric() -> None:
    nearer = parse_limits(["kv.peak_utilisation <= 0.9"])
    farther = parse_limits(
        ["kv.peak_utilisation", "my.a.peak / my.b.peak < 1", "memory.peak_bytes < 1 B"]
    )
    found = [limit.text for limit in override(nearer, farther)]
    assert found == [
        "kv.peak_utilisation <= 0.9",
        "my.a.peak / my.b.peak < 1",
        "memory.peak_bytes < 1 B",
    ]


def test_what_one_process_has_measured_no_other_of_the_run_needs_to() -> None:
    measured, missing = verdict("pass", is_named=True), verdict("not measured", is_named=True)
    measured = replace(measured, value=1.0)
    assert run_exit_code([([measured], state()), ([missing], state())]) == 0
    assert run_exit_code([([missing], state()), ([missing], state())]) == 1
    broken = replace(measured, verdict="fail")
    assert run_exit_code([([measured], state("cut")), ([broken], state())]) == 1
    assert run_exit_code([([measured], state("cut")), ([measured], state())]) == 3


def verdict(kind: str, *, is_named: bool) -> Verdict:
    return Verdict("x == 0", "x", None, "", kind, None, "", is_named)


@pytest.mark.parametrize(
    ("named_ones", "defaults", "complete", "partial"),
    [
        ([], ["pass"], 0, 3),
        ([], ["warn", "not measured", "not applicable"], 0, 3),
        ([], ["pass", "fail"], 1, 1),
        (["pass"], ["fail"], 0, 3),
        (["warn"], [], 0, 3),
        (["fail"], ["pass"], 1, 1),
        (["not measured"], [], 1, 1),
        (["not applicable"], [], 0, 3),
    ],
)
def test_exit_codes(
    named_ones: list[str], defaults: list[str], complete: int, partial: int
) -> None:
    verdicts = [verdict(kind, is_named=True) for kind in named_ones]
    verdicts += [verdict(kind, is_named=False) for kind in defaults]
    for name in ("complete", "running"):
        assert exit_code(verdicts, state(name)) == complete
    for name in ("cut", "damaged"):
        assert exit_code(verdicts, state(name)) == partial


def test_a_verdict_on_one_line() -> None:
    (found,) = named("memory.peak_bytes <= 2 GiB", metric("memory.peak_bytes", 3 * 2**30))
    assert found.line == "memory.peak_bytes <= 2 GiB: 3.00 GiB"
    assert found.sentence == "memory.peak_bytes = 3.00 GiB, limit <= 2 GiB"
    (found, *_) = judge(metric("driver.calls_per_step", 2), [parse_limit("driver.calls_per_step")])
    assert found.sentence == "driver.calls_per_step = 2 calls, default == 0"
    (found,) = named("pool.hit_rate >= 1", metric("pool.hit_rate", None, reason="no step"))
    assert found.sentence == "pool.hit_rate: not measured (no step), limit >= 1"


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("my.a_bytes.peak <= 1 B", "holds memory at the peak: `memscope report 'a run.mscope'`"),
        ("my.a_bytes.growth <= 1 B", "step. `memscope report 'a run.mscope'` shows since when"),
        ("my.a.growth / my.b.peak <= 1", "step. `memscope report 'a run.mscope'` shows since when"),
        ("oom.engine_count == 0", "what helps: `memscope explain 'a run.mscope'`"),
    ],
)
def test_advice_names_the_recording_and_the_place_to_look(limit: str, words: str) -> None:
    parsed = parse_limit(limit)
    (found,) = (
        each
        for each in judge({parsed.metric: Metric(parsed.metric, 3, parsed.unit)}, [parsed])
        if each.is_named
    )
    assert words in found.advise("a run.mscope")


@pytest.mark.parametrize("written", ["300K", "5 m", "1 G", "2 t"])
def test_a_letter_alone_is_a_size_of_metrics_in_bytes_only(written: str) -> None:
    assert parse_limit(f"tokens.peak <= {written}").unit == written[-1]
    assert parse_limit(f"memory.peak_bytes <= {written}").unit == "bytes"
