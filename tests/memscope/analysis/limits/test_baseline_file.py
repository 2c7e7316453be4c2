"""Baselines: written so that people can review them, read back exactly, judged as limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memscope.analysis.limits.baseline import Baseline, read_baseline, write_baseline
from memscope.analysis.limits.baseline_file import baseline_text
from memscope.analysis.limits.baseline_value import BaselineValue
from memscope.analysis.limits.limits import Verdict, judge, parse_limits
from memscope.analysis.limits.machine_class import MachineClass, find_machine_class
from memscope.analysis.metrics.measure import measure
from memscope.analysis.metrics.metric import Metric
from memscope.analysis.metrics.table import METRICS
from memscope.errors import MemscopeError
from tests.memscope.analysis.build import fact, fold
from tests.memscope.analysis.sweeps import run_sweeps
from tests.memscope.analysis.torch_runs import GIB, GPU, run_program

H200 = MachineClass("NVIDIA H200", "cuda", 150_122_299_392, "2.13")
OTHER = MachineClass("NVIDIA A100", "cuda", 85_095_874_560, "2.13")


def metrics(**values: float | None) -> dict[str, Metric]:
    """Metrics by name, with one _ for the dot."""
    rows = {row.name.replace(".", "_"): row for row in METRICS}
    return {
        rows[name].name: Metric(rows[name].name, value, rows[name].unit, "why")
        for name, value in values.items()
    }


def written(path: Path, machine: MachineClass = H200, **values: float | None) -> Baseline:
    write_baseline(path, {"recording": metrics(**values)}, machine)
    return read_baseline(path)


def verdicts(
    baseline: Baseline, tolerance: float = 0.05, machine: MachineClass = H200, **values: float
) -> list[Verdict]:
    limits = baseline.limits("recording", machine, tolerance).limits
    return [each for each in judge(metrics(**values), limits) if each.is_named]


def test_the_file_is_sorted_with_one_metric_a_line(tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    found = metrics(step_duration_ms=4, pool_hit_rate=0.995, memory_peak_bytes=1342177280)
    found |= metrics(growth_allocated=-2.5, kv_peak_utilisation=0.8, oom_request_rate=None)
    write_baseline(path, {"tests/test_b.py::test": found, "recording": found}, H200)
    metrics_text = (
        '"growth.allocated" = "-2.5 bytes/step"\n'
        '"memory.peak_bytes" = "1342177280 bytes"  # 1.25 GiB\n'
        '"pool.hit_rate" = "0.995 ratio"\n'
    )
    text = path.read_text()
    assert text.endswith(
        f'["recording"]\n{metrics_text}\n["tests/test_b.py::test"]\n{metrics_text}'
    )
    assert 'device = "NVIDIA H200"' in text
    assert 'total = "150122299392 bytes"  # 140 GiB' in text
    assert read_baseline(path).machine == H200
    assert list(tmp_path.iterdir()) == [path]


def test_growth_a_second_reads_back_as_that(tmp_path: Path) -> None:
    limits = parse_limits(["torch.alloc_retries.growth <= 1", "my.queue.growth <= 1 KiB"])
    found = [
        Metric("growth.outside", 2048.0, "bytes/s"),
        Metric("torch.alloc_retries.growth", 0.2, "a second"),
        Metric("my.queue.growth", 4096.0, "bytes/s"),
    ]
    write_baseline(tmp_path / "b.toml", {"x": {each.name: each for each in found}}, H200, limits)
    read = read_baseline(tmp_path / "b.toml").sections["x"]
    assert {name: (each.value, each.unit) for name, each in read.items()} == {
        each.name: (each.value, each.unit) for each in found
    }
    expected = read["growth.outside"]
    assert expected.limit(0.0).bound == "baseline 2.00 KiB/s + 1.00 KiB/s"


@given(st.floats(-1e18, 1e18), st.sampled_from([row for row in METRICS if row.direction]))
def test_every_value_reads_back_exactly(value: float, row: object) -> None:
    import tempfile

    name, unit = row.name, row.unit  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "b.toml"
        path.write_text(
            baseline_text(H200, {"x": [BaselineValue(name, value, unit, row.direction, 0.071)]})
        )
        expected = read_baseline(path).sections["x"][name]
    assert (expected.value, expected.tolerance) == (value, pytest.approx(0.071, abs=1e-12))


@pytest.mark.parametrize("section", ['tests/x.py::t["a\\b"]', "é\n]", "a.b", "# no", "\x7f\x00"])
def test_any_name_of_a_test_is_a_section(tmp_path: Path, section: str) -> None:
    path = tmp_path / "b.toml"
    write_baseline(path, {section: metrics(pool_hit_rate=1)}, H200)
    assert list(read_baseline(path).sections) == [section]


@pytest.mark.parametrize(
    ("tolerance", "value", "verdict"),
    [
        (0.05, 1050, "pass"),
        (0.05, 1051, "fail"),
        (0.05, 1, "pass"),
        (0.0, 1000, "pass"),
        (0.0, 1001, "fail"),
        (0.2, 1200, "pass"),
    ],
)
def test_lower_is_better(tmp_path: Path, tolerance: float, value: float, verdict: str) -> None:
    baseline = written(tmp_path / "b.toml", memory_peak_bytes=1000)
    (found,) = verdicts(baseline, tolerance, memory_peak_bytes=value)
    assert found.verdict == verdict


def test_higher_is_better(tmp_path: Path) -> None:
    baseline = written(tmp_path / "b.toml", pool_hit_rate=0.8)
    rates = {0.77: "pass", 0.75: "fail", 0.9: "pass"}
    for rate, verdict in rates.items():
        assert [each.verdict for each in verdicts(baseline, pool_hit_rate=rate)] == [verdict]


def test_a_verdict_says_actual_and_baseline(tmp_path: Path) -> None:
    baseline = written(tmp_path / "b.toml", memory_peak_bytes=1.9 * GIB)
    (found,) = verdicts(baseline, memory_peak_bytes=2.1 * GIB)
    assert found.sentence == "memory.peak_bytes = 2.10 GiB, baseline 1.90 GiB + 5 %"
    baseline = written(tmp_path / "c.toml", oom_engine_count=0)
    (found,) = verdicts(baseline, oom_engine_count=1)
    assert found.sentence == "oom.engine_count = 1 error, baseline 0 errors"


def test_noise_around_nothing_is_within_the_slack(tmp_path: Path) -> None:
    baseline = written(tmp_path / "b.toml", growth_allocated=-3)
    growth = {900.0: "pass", 1022.0: "fail"}
    for value, verdict in growth.items():
        assert [each.verdict for each in verdicts(baseline, growth_allocated=value)] == [verdict]


def test_what_is_below_nothing_has_room_above(tmp_path: Path) -> None:
    baseline = written(tmp_path / "b.toml", growth_allocated=-100_000)
    for value, verdict in {-95_001: "pass", -94_999: "fail"}.items():
        assert [each.verdict for each in verdicts(baseline, growth_allocated=value)] == [verdict]


def test_defaults_are_shown_beside_a_baseline(tmp_path: Path) -> None:
    baseline = written(tmp_path / "b.toml", oom_engine_count=2)
    limits = baseline.limits("recording", H200).limits
    found = judge(metrics(oom_engine_count=2), limits)
    shown = [(each.is_named, each.verdict) for each in found if each.metric == "oom.engine_count"]
    assert shown == [(True, "pass"), (False, "fail")]


def test_a_metric_that_is_no_longer_measured_is_not_kept(tmp_path: Path) -> None:
    baseline = written(tmp_path / "b.toml", memory_peak_bytes=5)
    limits = baseline.limits("recording", H200).limits
    assert judge(metrics(memory_peak_bytes=None), limits)[0].verdict == "not measured"


def test_a_cache_too_small_to_matter_does_not_break_it(tmp_path: Path) -> None:
    baseline = written(tmp_path / "b.toml", allocator_cache_ratio=0.1)
    small = Metric("allocator.cache_ratio", 0.5, "ratio", "too small", is_negligible=True)
    limits = baseline.limits("recording", H200).limits
    assert judge({small.name: small}, limits)[0].verdict == "pass"


def test_tolerances_of_the_file_win_and_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    written(path, memory_peak_bytes=1000)
    line = '"memory.peak_bytes" = "1000 bytes"'
    own = '"memory.peak_bytes" = { value = "1000 bytes", tolerance = "50 %" }'
    path.write_text(path.read_text().replace(line, own))
    assert verdicts(read_baseline(path), memory_peak_bytes=1500)[0].verdict == "pass"
    again = written(path, memory_peak_bytes=900)
    assert '{ value = "900 bytes", tolerance = "50 %" }' in path.read_text()
    assert verdicts(again, memory_peak_bytes=1351)[0].verdict == "fail"


def test_other_sections_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    written(path, memory_peak_bytes=1000, pool_hit_rate=1)
    write_baseline(path, {"other": metrics(pool_hit_rate=0.5)}, H200)
    found = written(path, memory_peak_bytes=2000).sections
    assert found["other"]["pool.hit_rate"].value == 0.5
    assert {name: each.value for name, each in found["recording"].items()} == {
        "memory.peak_bytes": 2000
    }


def test_what_measured_nothing_is_no_section(tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    measured = {"one": metrics(memory_peak_bytes=1), "two": metrics(memory_peak_bytes=None)}
    write_baseline(path, measured, H200)
    assert list(read_baseline(path).sections) == ["one"]
    with pytest.raises(MemscopeError, match="Nothing was measured"):
        write_baseline(path, {"two": metrics(step_duration_ms=3)}, H200)


def test_elsewhere_only_what_carries_over_is_judged(tmp_path: Path) -> None:
    baseline = written(tmp_path / "b.toml", memory_peak_bytes=1000, residency_resident_bytes=400)
    found = baseline.limits("recording", OTHER)
    assert [limit.metric for limit in found.limits] == ["residency.resident_bytes"]
    (warning,) = found.warnings
    assert "NVIDIA H200 there, NVIDIA A100 here" in warning
    assert "memory.peak_bytes" in warning
    assert baseline.limits("recording", H200).warnings == ()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (MachineClass("NVIDIA H200", "cuda", 150_122_299_392, "2.14"), "torch 2.13 there, 2.14"),
        (MachineClass("NVIDIA H200", "cuda", 20 * GIB, "2.13"), "memory"),
        (MachineClass("NVIDIA H200", "cuda", 150_000_000_000, "2.13"), ""),
        (MachineClass("no GPU", "none", None, "2.13"), "NVIDIA H200 there, no GPU here"),
    ],
)
def test_classes_of_machines(other: MachineClass, words: str) -> None:
    found = "; ".join(other.differences(H200))
    assert words in found
    assert bool(words) == bool(found)


def test_one_file_is_of_one_class_of_machine(tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    written(path, memory_peak_bytes=1000)
    assert written(path, OTHER, memory_peak_bytes=9).machine == OTHER
    with pytest.raises(MemscopeError, match="another class of machine"):
        write_baseline(path, {"other": metrics(pool_hit_rate=1)}, H200)


def test_a_missing_section_says_so(tmp_path: Path) -> None:
    found = written(tmp_path / "b.toml", memory_peak_bytes=1).limits("other", H200)
    assert (found.limits, "no section 'other'" in found.warnings[0]) == ((), True)


HEAD = '[memscope]\ndevice = "x"\nkind = "cuda"\ntorch = ""\n'


@pytest.mark.parametrize(
    ("limits", "better"),
    [
        (["mine.depth.peak <= 9"], "lower"),
        (["mine.depth.peak > 1"], "higher"),
        (["mine.depth.peak <= 9", "mine.depth.peak < 8"], "lower"),
        (["mine.depth.peak >= 1", "mine.depth.peak <= 9"], None),
        (["mine.depth.peak == 4"], None),
        (["mine.other.peak <= 9"], None),
    ],
)
def test_a_reading_is_kept_to_the_side_that_limits_hold_it_to(
    tmp_path: Path, limits: list[str], better: str | None
) -> None:
    name, path = "mine.depth.peak", tmp_path / "b.toml"
    found = metrics(pool_hit_rate=1) | {name: Metric(name, 4, "")}
    write_baseline(path, {"recording": found}, H200, parse_limits(limits))
    kept = read_baseline(path).sections["recording"]
    assert (kept[name].better if name in kept else None) == better
    if better:
        assert f'"{name}" = {{ value = "4", better = "{better}" }}' in path.read_text()


def test_a_reading_is_judged_as_a_metric_is(tmp_path: Path) -> None:
    name, path = "host.rss_bytes.peak / nvml.used_bytes.min", tmp_path / "b.toml"
    found = {name: Metric(name, 0.5, "ratio")}
    write_baseline(path, {"recording": found}, H200, parse_limits([f"{name} >= 10 %"]))
    baseline = read_baseline(path)
    for value, verdict in {0.476: "pass", 0.474: "fail", 0.9: "pass"}.items():
        limits = baseline.limits("recording", H200).limits
        judged = judge({name: Metric(name, value, "ratio")}, limits)
        assert [each.verdict for each in judged if each.is_named] == [verdict]
    assert baseline.limits("recording", OTHER).limits == ()


def test_whether_it_holds_memory(tmp_path: Path) -> None:
    assert written(tmp_path / "a.toml", memory_peak_bytes=1).holds_memory("recording")
    assert not written(tmp_path / "b.toml", oom_engine_count=0).holds_memory("recording")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a baseline"),
        ("limits = []", "not a baseline"),
        ("[memscope", "cannot be read"),
        (f"{HEAD}total = 'much'", "not a baseline"),
        (f"x = 3\n{HEAD}", "x is not a section"),
        (
            f'{HEAD}["x"]\n"memory.peak_byte" = "1 bytes"',
            "a baseline cannot hold 'memory.peak_byte'",
        ),
        (f'{HEAD}["x"]\n"kv.peak_utilisation" = "1 ratio"', "a baseline cannot hold"),
        (f'{HEAD}["x"]\n"memory.peak_bytes" = 3', "is not a value"),
        (f'{HEAD}["x"]\n"memory.peak_bytes" = "3 ms"', "measured in bytes, not in 'ms'"),
        (f'{HEAD}["x"]\n"memory.peak_bytes" = {{ value = "3 B", by = 2 }}', "is not a value"),
        (f'{HEAD}["x"]\n"pool.hit_rate" = {{ value = "1", tolerance = "x" }}', "not a tolerance"),
        (
            f'{HEAD}["x"]\n"pool.hit_rate" = {{ value = "1", better = "lower" }}',
            "a baseline cannot hold",
        ),
        (f'{HEAD}["x"]\n"my.a.peak" = "1"', "a baseline cannot hold"),
        (
            f'{HEAD}["x"]\n"my.a.peak" = {{ value = "1", better = "more" }}',
            "a baseline cannot hold",
        ),
        (f'{HEAD}["x"]\n"torch.b.peak" = {{ value = "1", better = "lower" }}', "no reading"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "b.toml"
    path.write_text(text)
    with pytest.raises(MemscopeError) as caught:
        read_baseline(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_class_of_a_recording() -> None:
    versions = fact("versions", {"torch": "2.13.0+cu130"})
    rows = [versions, *run_program(3, lambda step: GIB, lambda step: GIB)]
    assert find_machine_class(fold(rows)) == MachineClass(
        "H200", "cuda", GPU["data"]["total_bytes"], "2.13"
    )
    assert find_machine_class(fold([])) == MachineClass("no GPU", "none", None, "")


def test_a_run_keeps_its_own_baseline(tmp_path: Path) -> None:
    timeline = fold(run_sweeps("past", 12, 4))
    measured, machine = measure(timeline), find_machine_class(timeline)
    write_baseline(tmp_path / "b.toml", {"recording": measured}, machine)
    limits = read_baseline(tmp_path / "b.toml").limits("recording", machine, 0.0).limits
    found = [each for each in judge(measured, limits) if each.is_named]
    assert {each.verdict for each in found} == {"pass"}
    worse = measure(fold(run_sweeps("symmetric", 12, 4)))
    broken = {each.metric for each in judge(worse, limits) if each.verdict == "fail"}
    assert "residency.uploads_per_step" in broken
