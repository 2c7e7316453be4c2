"""Limits on readings, on ratios and on growth: what is measured, and why where it is not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from memscope.analysis.limits.limits import judge, parse_limit
from memscope.analysis.metrics.measure import measure
from memscope.analysis.metrics.metric import Metric
from memscope.analysis.metrics.table import METRICS
from memscope.analysis.timeline.reading_names import BY_NAME
from memscope.events import Kind
from memscope.probes.nvml import probe as nvml
from memscope.probes.torch import allocator
from tests.memscope.analysis.build import Event, event, fact, fold
from tests.memscope.analysis.torch_runs import GIB, GPU, run_program, sample
from tests.paths import ROOT

HOST = fact("device.0", {"name": "host", "kind": "host", "total_bytes": 1000})


def measured(rows: list[Event], name: str, *, split: int = 0) -> Metric:
    limit = parse_limit(f"{name} <= 0")
    return measure(fold(rows, split=split), [limit])[limit.metric]


def value(rows: list[Event], name: str, *, split: int = 0) -> float | None:
    return measured(rows, name, split=split).value


def reading(t_ns: int, size: float, reading_name: str = "my.level") -> Event:
    return event(Kind.SAMPLE, t_ns, name=reading_name, value=float(size))


def stepped(levels: list[list[float]], *, gap: float | None = None) -> list[Event]:
    """Steps of 100 ns, one list of readings each; ``gap`` is read before each, outside of it."""
    rows = []
    for step, readings in enumerate(levels):
        start = step * 200 + 100
        if gap is not None:
            rows.append(reading(start - 50, gap))
        rows += [reading(start + 1 + index, size) for index, size in enumerate(readings)]
        rows.append(event(Kind.STEP, start + 100, step=step, duration_ns=100))
    return rows


def test_peak_min_and_end_are_exact_in_long_recordings() -> None:
    sizes = np.random.default_rng(0).integers(1000, 9000, 30_000)
    sizes[[777, 20_001]] = [10_000, 3]
    rows = [reading(index, size) for index, size in enumerate(sizes.tolist())]
    assert value(rows, "my.level.peak", split=997) == 10_000
    assert value(rows, "my.level.min", split=997) == 3
    assert value(rows, "my.level.end", split=997) == sizes[-1]


def test_percentiles_are_of_readings_within_steps_after_warmup() -> None:
    rows = stepped([[900.0] * 5, [1, 2, 3, 4], [5, 6, 7, 8]], gap=800)
    assert value(rows, "my.level.median") == 4
    assert value(rows, "my.level.p95") == 8
    assert value(rows, "my.level.peak") == 900
    assert value([fact("run.warmup_steps", 0), *rows], "my.level.p95") == 900
    assert value([fact("run.warmup_steps", 2), *rows], "my.level.median") == 6


def test_any_portions_give_the_same() -> None:
    generator = np.random.default_rng(2)
    levels = [generator.lognormal(3, 1, generator.integers(0, 9)).tolist() for _ in range(60)]
    rows = [reading(1, 3.0), fact("run.warmup_steps", 3), *stepped(levels, gap=5e9)]
    for name in ("p95", "median", "peak", "min", "end", "growth"):
        found = {value(rows, f"my.level.{name}", split=split) for split in (0, 1, 7, 100)}
        assert len(found) == 1, (name, found)
        assert found != {None}


def test_without_steps_all_readings_count() -> None:
    rows = [reading(index, index) for index in range(1, 101)]
    assert value(rows, "my.level.p95") == 95
    assert value(rows, "my.level.median", split=9) == 50


def test_readings_of_warmup_alone_are_no_percentile() -> None:
    metric = measured(stepped([[1.0, 2.0]]), "my.level.p95")
    assert metric.value is None
    assert "after warm-up" in (metric.reason or "")


def of_devices(reading_name: str, **sizes: list[int]) -> list[Event]:
    """Readings of devices "_0", "_1", …; "host" is none."""
    devices = {name: -1 if name == "host" else int(name[1:]) for name in sizes}
    return [
        event(Kind.SAMPLE, index, name=reading_name, bytes=size, device=devices[name])
        for name, found in sizes.items()
        for index, size in enumerate(found)
    ]


def test_the_highest_device_counts_unless_one_is_named() -> None:
    rows = of_devices("torch.active_bytes", _0=[5, 9, 2], _1=[7, 8, 4], host=[1])
    names = {
        "torch.active_bytes.peak": 9,
        "torch.active_bytes.end": 4,
        "torch.active_bytes.min": 1,
        "torch.active_bytes[cuda:1].peak": 8,
        "torch.active_bytes[1].min": 4,
        "torch.active_bytes[host].end": 1,
    }
    assert {name: value(rows, name) for name in names} == names
    missing = measured(rows, "torch.active_bytes[cuda:3].peak")
    assert missing.value is None
    assert "of cuda:3 is not in this recording" in (missing.reason or "")


def test_what_was_read_without_a_device_is_the_first_ones() -> None:
    assert value([reading(1, 4)], "my.level[cuda:0].peak") == 4


def test_a_peak_takes_the_register_that_misses_nothing() -> None:
    rows = [sample("torch.reserved_bytes", 1, 40), sample("torch.peak_reserved_bytes", 2, 90)]
    assert value(rows, "torch.reserved_bytes.peak") == 90
    assert value(rows, "torch.reserved_bytes.end") == 40
    assert value(rows, "torch.reserved_bytes.p95") == 40


def test_a_ratio_of_two() -> None:
    rows = [GPU, sample("torch.allocated_bytes", 1, 30), sample("torch.reserved_bytes", 2, 40)]
    ratio = "torch.allocated_bytes.peak / torch.reserved_bytes.peak"
    assert measured(rows, ratio) == Metric(ratio, 0.75, "ratio")
    assert value(rows, "torch.allocated_bytes.peak / memory.peak_bytes") == 0.75
    assert measured(rows, "my.a.peak / my.b.peak").reason == "my.a is not in this recording"
    zero = [reading(1, 0.0, "my.b"), reading(1, 1.0, "my.a")]
    assert measured(zero, "my.a.peak / my.b.peak").reason == "my.b.peak is 0"


@pytest.mark.parametrize(("a_step", "verdict"), [(1023, "pass"), (1024, "pass"), (1025, "fail")])
def test_growth_of_a_reading_a_step(a_step: int, verdict: str) -> None:
    rows = run_program(200, lambda step: GIB + a_step * step, lambda step: 2 * GIB)
    limit = parse_limit("torch.allocated_bytes.growth <= 1 KiB")
    metric = measure(fold(rows), [limit])
    assert judge(metric, [limit])[0].verdict == verdict
    assert metric[limit.metric].unit == "bytes/step"
    assert value(rows, "growth.allocated") == value(rows, "torch.allocated_bytes.growth")


@pytest.mark.parametrize(
    ("rows", "name", "reason"),
    [
        ([], "torch.active_bytes.peak", "torch.active_bytes is not in this recording"),
        (
            [fact("nvml", {"absent": {"nvml.process_bytes": "it is in a container"}})],
            "nvml.process_bytes.peak",
            "it is in a container",
        ),
        ([fact("nvml", {"absent": {"nvml": "no driver"}})], "nvml.free_bytes.min", "no driver"),
        ([fact("probe.pinned", {"absent": "old"})], "host.pinned_bytes.peak", ": old"),
        (
            [fact("torch.private_pools", {"absent": "too many blocks"})],
            "torch.private_free_bytes.peak",
            ": too many blocks",
        ),
        ([fact("probe.host", {"stopped": "OSError"})], "host.rss_bytes.peak", ": OSError"),
        ([HOST], "pool.hit_rate / pool.hit_rate", "pool.hit_rate: "),
    ],
)
def test_what_is_missing_has_the_reason_of_its_probe(
    rows: list[Event], name: str, reason: str
) -> None:
    metric = measured(rows, name)
    assert metric.value is None
    assert reason in (metric.reason or "")


def test_every_reading_that_is_sampled_can_be_named() -> None:
    """By its text in the sources: a limit on a reading that the table lacks is refused."""
    root = ROOT
    sources = [*root.glob("memscope/probes/*.py"), *root.glob("runners/**/*.py")]
    text = "\n".join(path.read_text() for path in sources)
    written = set(re.findall(r'sample\(\s*"([\w.]+)"', text))
    areas = "torch|nvml|host|model|cgroup|device|pool|residency|kv"
    written |= set(re.findall(rf'"((?:{areas})\.\w+_bytes)"', text)) - {row.name for row in METRICS}
    written |= {f"torch.{name}" for name in (*allocator._BYTES, *allocator._COUNTS)}
    written |= {f"nvml.{name}" for name in nvml._FIELDS}
    assert len(written) > 20
    assert written - BY_NAME.keys() == set()


def test_torchs_readings_do_not_apply_on_a_host_device() -> None:
    assert not measured([HOST], "torch.reserved_bytes.peak").is_applicable
    assert measured([], "torch.reserved_bytes.peak").is_applicable


def test_an_open_reading_takes_the_unit_of_its_limit() -> None:
    rows = [reading(1, 3 << 30)]
    limit = parse_limit("my.level.peak <= 2 GiB")
    (verdict, *_) = judge(measure(fold(rows), [limit]), [limit])
    assert verdict.sentence == "my.level.peak = 3.00 GiB, limit <= 2 GiB"
    assert verdict.verdict == "fail"
    assert parse_limit("my.level.end < 3 tokens").unit == "tokens"
    assert parse_limit("my.level.end < 30 %").value == pytest.approx(0.3)
    assert parse_limit("my.pause_ms.p95 < 0.1 s").value == pytest.approx(100)
