"""Growth, fragmentation and flushes: named where they are, and nowhere else."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memscope.analysis.limits.limits import judge, parse_limit, parse_limits
from memscope.analysis.metrics.growth import MAX_FLOORS, take_floors, theil_sen
from memscope.analysis.metrics.measure import measure
from memscope.analysis.metrics.table import metrics
from memscope.analysis.summary.summary import summarize
from memscope.events import Kind
from tests.memscope.analysis.build import Event, event, fact, fold, state
from tests.memscope.analysis.torch_runs import GIB, MIB, STEP_NS, run_program, sample


def retries() -> list[Event]:
    """A count, read at each tenth of a second."""
    return [
        event(Kind.SAMPLE, at * 100_000_000, name="torch.alloc_retries", value=float(at), device=0)
        for at in range(120)
    ]


def value(rows: list[Event], name: str) -> float | None:
    return metrics(fold(rows))[name].value


def sentences(rows: list[Event]) -> str:
    return "\n".join(map(str, summarize(fold(rows), state()).sentences))


def flat(size: int):
    return lambda step: size


LEAK = run_program(600, lambda step: GIB + 4 * MIB * step, lambda step: GIB + 4 * MIB * (step + 9))
FLUSHING = run_program(600, flat(GIB), flat(GIB + 64 * MIB), flush_every=1)
FRAGMENTED = run_program(600, flat(GIB), flat(4 * GIB), peak=GIB + 100 * MIB)
STEADY = run_program(600, flat(GIB), flat(GIB + 100 * MIB), process=flat(2 * GIB))
TOKEN = 114 << 10


def kv(step: int) -> int:
    return TOKEN * (step % 300 + 1)


GENERATE = run_program(600, lambda step: GIB + kv(step), flat(2 * GIB), kv=kv, peak=2 * GIB)


def test_a_leak_is_named_with_its_metric():
    assert value(LEAK, "growth.allocated") == pytest.approx(4 * MIB)
    text = sentences(LEAK)
    assert "Leak: allocated memory grows by 4.00 MiB a step" in text
    assert "growth.allocated" in text
    assert "full in" in text
    assert "Fragmentation" not in text


def in_seconds(rows: list[Event]) -> list[Event]:
    return [fact("run.step_source", "second"), *rows]


def without_steps(rows: list[Event]) -> list[Event]:
    return [row for row in rows if row["kind"] != Kind.STEP]


def as_own(rows: list[Event]) -> list[Event]:
    """The readings of one reading, as those of the program's own."""
    return [
        {**row, "name": "my.queue"} for row in rows if row.get("name") == "torch.reserved_bytes"
    ]


@pytest.mark.parametrize(
    ("rows", "unit", "words"),
    [
        (LEAK, "bytes/step", "4.00 MiB a step, 2.23 GiB over 570 steps"),
        (in_seconds(LEAK), "bytes/s", "4.00 MiB a second, 2.23 GiB over 570 seconds"),
        (without_steps(LEAK), "bytes/s", "200 MiB a second, 2.05 GiB over 10 seconds"),
    ],
    ids=["steps", "seconds", "neither"],
)
def test_growth_is_a_second_where_the_program_has_no_steps(
    rows: list[Event], unit: str, words: str
) -> None:
    limits = parse_limits(
        [
            "torch.reserved_bytes.growth <= 1 GiB",
            "torch.alloc_retries.growth <= 1",
            "torch.allocated_bytes.growth <= 1 GiB/s",
            "my.queue.growth <= 1 GiB",
        ]
    )
    found = measure(fold([*rows, *retries(), *as_own(rows)]), limits)
    assert found["growth.allocated"].unit == unit
    assert found["torch.reserved_bytes.growth"].unit == unit
    assert found["torch.allocated_bytes.growth"].unit == unit
    assert found["my.queue.growth"].unit == unit
    assert found["torch.alloc_retries.growth"].unit == unit.replace("bytes/step", "a step").replace(
        "bytes/s", "a second"
    )
    assert f"grows by {words}" in sentences(rows)


def on_device(device: int, rows: list[Event]) -> list[Event]:
    """The readings of ``rows``, as those of another device."""
    card = fact(f"cuda.{device}", {"name": "H200", "kind": "cuda", "total_bytes": 80 * GIB})
    samples = [{**row, "device": device} for row in rows if row["kind"] == Kind.SAMPLE]
    return [card, *samples]


def in_order(*parts: list[Event]) -> list[Event]:
    return sorted((row for part in parts for row in part), key=lambda row: row["t_ns"])


NAMED = (
    "growth.allocated",
    "growth.reserved_gap",
    "growth.outside",
    "allocator.cache_ratio",
    "allocator.swing_ratio",
    "fragmentation.internal",
)


def growing(rate: int, reserved: int) -> list[Event]:
    """A process that grows by ``rate`` and is read eight times within each of its steps."""
    rows = run_program(
        1600,
        lambda at: GIB + at // 5 % 4 * 100 * MIB + rate * at,
        lambda at: reserved + 2 * rate * at,
        process=lambda at: reserved + 3 * rate * at,
    )
    requested = [
        {**row, "name": "torch.requested_bytes", "bytes": row["bytes"] * 9 // 10 - rate}
        for row in rows
        if row.get("name") == "torch.allocated_bytes"
    ]
    ends = [
        {**row, "step": row["step"] // 40, "duration_ns": 40 * STEP_NS - 1}
        for row in rows
        if row["kind"] == Kind.STEP and row["step"] % 40 == 39
    ]
    return in_order([row for row in rows if row["kind"] != Kind.STEP], requested, ends)


def test_growth_and_the_allocator_name_their_device_among_several() -> None:
    slow, fast = growing(MIB // 8, 3 * GIB), growing(MIB, 30 * GIB)
    found, first, second = (
        metrics(fold(rows)) for rows in (in_order(slow, on_device(1, fast)), slow, fast)
    )
    for name in NAMED:
        values = [first[name].value, second[name].value]
        assert None not in values, name
        assert first[name].device_words is None, "one device needs no name"
        place = f"cuda:{values.index(max(values))}"
        assert (found[name].value, found[name].device) == (max(values), place), name
        assert found[name].device_words == f"{place}, the highest of 2 GPUs"
    assert found["growth.allocated"].device == "cuda:1"
    assert found["allocator.swing_ratio"].device == "cuda:0"


def test_a_value_too_small_to_matter_names_its_device() -> None:
    small = run_program(600, flat(GIB), flat(GIB + 90 * MIB))
    found = metrics(fold(in_order(STEADY, on_device(1, small))))["allocator.cache_ratio"]
    assert (found.is_negligible, found.device_words) == (True, "cuda:0, the highest of 2 GPUs")
    assert found.reason == "too small to matter: 100 MiB"


def test_a_small_cache_on_one_device_hides_none_on_another() -> None:
    rows = in_order(
        run_program(600, flat(MIB), flat(100 * MIB), peak=MIB), on_device(1, FRAGMENTED)
    )
    found = metrics(fold(rows))["allocator.cache_ratio"]
    assert (found.value, found.device, found.is_negligible) == (0.75, "cuda:1", False)
    text = "Fragmentation: 75% of what torch reserves on cuda:1 (3.00 GiB)"
    assert text in sentences(rows)


@pytest.mark.parametrize(
    ("rows", "limit", "verdict"),
    [
        (LEAK, "growth.allocated <= 5 MiB", "pass"),
        (LEAK, "growth.allocated <= 5 MiB/s", "not measured"),
        (in_seconds(LEAK), "growth.allocated <= 5 MiB/s", "pass"),
        (in_seconds(LEAK), "growth.allocated <= 3 MiB", "fail"),
        (in_seconds(LEAK), "torch.allocated_bytes.growth <= 3 MiB/s", "fail"),
    ],
)
def test_a_limit_a_second_judges_no_step(rows: list[Event], limit: str, verdict: str) -> None:
    limits = parse_limits([limit])
    found = judge(measure(fold(rows), limits), limits)[0]
    assert found.verdict == verdict
    assert (found.value is None) == (verdict == "not measured")


def test_a_leak_says_when_the_device_is_full():
    rows = run_program(
        600, lambda s: GIB + MIB * s, lambda s: GIB + MIB * s, process=lambda s: 2 * GIB + MIB * s
    )
    left = 80 * GIB - (2 * GIB + 595 * MIB)
    assert value(rows, "memory.time_until_full_s") == pytest.approx(left / MIB * 0.02, rel=0.01)


def test_the_device_that_is_full_first_is_named():
    """The one that grows faster has far more room."""
    roomy = run_program(600, lambda s: GIB + 2 * MIB * s, lambda s: GIB + 2 * MIB * s)
    tight = run_program(600, lambda s: 70 * GIB + MIB * s, lambda s: 70 * GIB + MIB * s)
    rows = in_order(roomy, on_device(1, tight))
    found = metrics(fold(rows))["memory.time_until_full_s"]
    left = 10 * GIB - 595 * MIB
    assert found.value == pytest.approx(left / MIB * 0.02, rel=0.01)
    assert found.device_words == "cuda:1, the lowest of 2 GPUs"
    assert "cuda:1 is full in" in sentences(rows)
    alone = metrics(fold(in_order(STEADY, on_device(1, tight))))["memory.time_until_full_s"]
    assert (alone.value, alone.device) == (found.value, "cuda:1"), "the other does not grow"


def test_small_growth_on_one_device_hides_no_leak_on_another():
    """100 KiB a step of 60 GiB do not matter; 20 KiB of 1 GiB do, over 600 steps."""
    large = run_program(600, lambda s: 60 * GIB + 100 * 1024 * s, flat(70 * GIB))
    small = run_program(600, lambda s: GIB + 20 * 1024 * s, flat(2 * GIB))
    rows = in_order(large, on_device(1, small))
    found = metrics(fold(rows))["growth.allocated"]
    assert found.value == pytest.approx(20 * 1024)
    assert (found.device, found.is_negligible) == ("cuda:1", False)
    assert "Leak: allocated memory on cuda:1 grows by 20.0 KiB a step" in sentences(rows)


def test_noise_on_one_device_hides_no_leak_on_another():
    """Floors that rise in 75 of 100 pairs are no leak, however steep."""
    levels = np.random.default_rng(1).integers(0, 60 * GIB, 600).tolist()
    noise = run_program(600, lambda s: 40 * MIB * s + levels[s], flat(90 * GIB))
    rows = in_order(LEAK, on_device(1, noise))
    assert metrics(fold(rows))["growth.allocated"].device == "cuda:1"
    assert "Leak" not in sentences(noise)
    assert "Leak: allocated memory on cuda:0 grows by 4.00 MiB a step" in sentences(rows)


def test_fragmentation_adds_no_growth_of_another_device():
    growing = run_program(600, flat(GIB), lambda s: GIB + 2 * MIB * s, peak=GIB)
    text = sentences(in_order(FRAGMENTED, on_device(1, growing)))
    assert "Fragmentation: 75% of what torch reserves on cuda:0 (3.00 GiB) is free" in text
    assert "2.00 MiB a step, 1.11 GiB over 570 steps more) is free" in sentences(growing)


def test_fragmentation_is_named_with_its_metric():
    assert value(FRAGMENTED, "allocator.cache_ratio") == 0.75
    text = sentences(FRAGMENTED)
    assert "Fragmentation: 75% of what torch reserves (3.00 GiB)" in text
    assert "allocator.cache_ratio" in text
    assert "Leak" not in text


def test_a_cache_that_the_peak_fills_is_no_fragmentation():
    assert "Fragmentation" not in sentences(
        run_program(600, flat(GIB), flat(4 * GIB), peak=4 * GIB)
    )


def test_a_gap_that_grows_is_fragmentation():
    rows = run_program(600, flat(GIB), lambda step: GIB + 20 * MIB + MIB * step)
    assert value(rows, "growth.reserved_gap") == pytest.approx(MIB)
    assert "1.00 MiB a step" in sentences(rows)
    assert "Fragmentation" in sentences(rows)


@pytest.mark.parametrize(("rate", "is_named"), [(MIB, True), (100 * 1024, False)])
def test_host_memory_that_grows_is_named_where_it_matters(rate: int, is_named: bool):
    steps = [row for row in STEADY if row["kind"] == Kind.STEP]
    rss = [
        event(Kind.SAMPLE, row["t_ns"] - 1, name="host.rss_bytes", bytes=GIB + rate * row["step"])
        for row in steps
    ]
    words = "Host memory: this process's RSS grows by 1.00 MiB a step"
    assert (words in sentences(in_order(steps, rss))) == is_named


def test_a_flush_in_each_step_is_named_with_its_metric():
    assert value(FLUSHING, "allocator.flushes_in_steps") == 599, "that of warm-up is not counted"
    text = sentences(FLUSHING)
    assert "empty_cache() ran 599 times in 599 steps" in text
    assert "train.py:31 in step" in text
    assert "/home/me" not in text
    assert "4.00 ms" in text
    assert "1.00 GiB" in text
    assert "Leak" not in text


def test_a_flush_before_a_graph_is_captured_is_not_judged():
    flush = event(Kind.ALLOCATOR_FLUSH, 5 * STEP_NS, name="graph capture", bytes=1, data={})
    assert value([*STEADY, flush], "allocator.flushes_in_steps") == 0


def test_a_growing_kv_cache_is_no_leak():
    text = sentences(GENERATE)
    assert "Leak" not in text
    assert "Fragmentation" not in text
    assert abs(value(GENERATE, "growth.allocated") or 0) < 1024


def test_without_its_kv_readings_the_same_program_would_look_like_one():
    rows = [row for row in GENERATE if row.get("name") != "model.kv_bytes"][: 2 * 299 + 100]
    assert (value(rows, "growth.allocated") or 0) > 1024


def test_a_steady_program_has_nothing_to_say():
    found = metrics(fold(STEADY))
    for name in ("growth.allocated", "growth.reserved_gap", "growth.outside"):
        assert found[name].value == 0
    assert not found["memory.time_until_full_s"].is_applicable
    text = sentences(STEADY)
    assert not any(word in text for word in ("Leak", "Fragmentation", "empty_cache"))


def test_growth_outside_torch_is_told_apart():
    rows = run_program(600, flat(GIB), flat(GIB), process=lambda step: 2 * GIB + 2 * MIB * step)
    assert value(rows, "growth.outside") == pytest.approx(2 * MIB)
    assert "Leak outside torch" in sentences(rows)


def test_what_a_driver_call_took_is_not_outside():
    rows = [event(Kind.DEVICE_MALLOC, 1, bytes=512 * MIB), *STEADY]
    outside = fold(rows).counters[0].outside
    assert outside is not None
    assert outside.latest == 2 * GIB - (GIB + 100 * MIB) - 512 * MIB


def test_too_short_a_run_says_how_long_it_takes():
    found = metrics(fold(LEAK[:40]))["growth.allocated"]
    assert found.value is None
    assert (found.reason or "").startswith("growth needs 8 readings after warm-up (about ")
    assert " at this rate), and there are " in (found.reason or "")
    step = [row for row in LEAK if row["kind"] == Kind.STEP][1]
    names = ("torch.allocated_bytes", "torch.reserved_bytes")
    often = [sample(name, step["t_ns"] - 20 + at, GIB) for at in range(20) for name in names]
    rows = [row for row in LEAK if row["t_ns"] <= step["t_ns"] and row["kind"] != Kind.SAMPLE]
    found = metrics(fold(in_order(rows, often)))["growth.allocated"]
    assert found.reason == (
        "growth needs readings from 8 parts of the run after warm-up, and there are readings "
        "from 1: run longer, or for more steps"
    )


def test_a_program_without_steps_grows_by_the_second():
    rows = [row for row in LEAK if row["kind"] != Kind.STEP]
    assert value(rows, "growth.allocated") == pytest.approx(4 * MIB * 50)
    assert "a second" in sentences(rows)


def test_a_small_cache_passes_by_default_and_not_by_name():
    rows = run_program(600, flat(10 * MIB), flat(100 * MIB))
    found = metrics(fold(rows))
    assert found["allocator.cache_ratio"].value == 0.9
    name = "allocator.cache_ratio"
    default = next(each for each in judge(found) if each.metric == name)
    assert (default.verdict, "too small to matter" in (default.reason or "")) == ("pass", True)
    named = judge(found, [parse_limit(f"{name} <= 0.2")])[0]
    assert named.verdict == "fail"


def test_readings_at_step_ends_do_not_count_as_cache():
    ends = [
        sample(name, step * STEP_NS + STEP_NS - 2, size, step=step)
        for step in range(600)
        for name, size in (("torch.allocated_bytes", MIB), ("torch.reserved_bytes", 4 * GIB))
    ]
    rows = sorted([*run_program(600, flat(4 * GIB), flat(4 * GIB)), *ends], key=lambda r: r["t_ns"])
    assert value(rows, "allocator.cache_ratio") == 0


def test_swing_is_of_readings_within_a_step():
    rows: list[Event] = []
    for step in range(4):
        for number, size in enumerate((100, 300, 400, 200)):
            at = step * STEP_NS + number
            rows.append(sample("torch.allocated_bytes", at, size, step=step, layer=number))
            rows.append(sample("torch.reserved_bytes", at, 500, step=step, layer=number))
        rows.append(event(Kind.STEP, step * STEP_NS + 9, step=step))
    assert value(rows, "allocator.swing_ratio") == 0.75


def test_rounding_is_of_what_was_asked_for():
    rows = [*STEADY, sample("torch.requested_bytes", 595 * STEP_NS + STEP_NS // 2, GIB * 3 // 4)]
    assert value(rows, "fragmentation.internal") == 0.25


@pytest.mark.parametrize("split", [1, 7, 100])
def test_any_split_into_batches_gives_the_same_metrics(split):
    rows = run_program(100, lambda s: GIB + s, flat(2 * GIB), process=flat(3 * GIB), flush_every=3)
    whole, parts = metrics(fold(rows)), metrics(fold(rows, split=split))
    assert whole == parts


@given(
    slope=st.integers(-100, 100),
    noise=st.lists(st.integers(0, 10**6), min_size=60, max_size=60),
    spikes=st.sets(st.integers(0, 59), max_size=12),
)
def test_the_slope_of_floors_is_not_moved_by_spikes(slope, noise, spikes):
    x = np.arange(60.0)
    y = slope * x + [noise[n] if n in spikes else 0 for n in range(60)]
    assert theil_sen(x, y)[0] == pytest.approx(slope)


def test_a_long_run_costs_as_much_as_a_short_one():
    x = np.arange(100_000.0)
    at, floors = take_floors(x, x * 2)
    assert len(floors) == MAX_FLOORS
    started = time.perf_counter()
    assert theil_sen(at, floors)[0] == 2
    assert time.perf_counter() - started < 0.5
