"""What a process held on several devices: metrics of the highest one, a table of their sum."""

from __future__ import annotations

import pytest

from memscope.analysis.limits.limits import parse_limit
from memscope.analysis.summary.summary import Summary, summarize
from memscope.events import Kind
from tests.memscope.analysis.build import Event, event, fact, fold, state
from tests.memscope.analysis.torch_runs import GIB, MIB, sample


def card(device: int, total: int = 80 * GIB) -> Event:
    return fact(f"cuda.{device}", {"name": "H200", "kind": "cuda", "total_bytes": total})


def held(device: int, size: int, reading_name: str = "torch.reserved_bytes") -> Event:
    return sample(reading_name, 1, size) | {"device": device}


def summary_of(*rows: Event, limit: str = "") -> Summary:
    limits = [parse_limit(limit)] if limit else []
    return summarize(fold([event(Kind.MARK, name="up"), *rows]), state(), limits=limits)


def test_peak_is_that_of_the_highest_device_and_says_so() -> None:
    rows = [card(0), card(1), held(0, GIB), held(1, 20 * GIB)]
    found = summary_of(*rows, limit="memory.peak_bytes <= 8 GiB")
    peak, ratio = found.metrics["memory.peak_bytes"], found.metrics["memory.peak_ratio"]
    assert (peak.value, peak.device) == (20 * GIB, "cuda:1")
    assert (ratio.value, ratio.device_words) == (0.25, "cuda:1, the highest of 2 GPUs")
    assert found.verdicts[0].sentence == (
        "memory.peak_bytes = 20.0 GiB (cuda:1, the highest of 2 GPUs), limit <= 8 GiB"
    )
    assert found.device_bytes == 21 * GIB
    assert found.device_peaks == {0: GIB, 1: 20 * GIB}


def test_share_is_of_the_fullest_device_whatever_its_size() -> None:
    found = summary_of(card(0, 10 * GIB), card(1), held(0, 9 * GIB), held(1, 20 * GIB))
    assert found.metrics["memory.peak_bytes"].device == "cuda:1"
    assert found.metrics["memory.peak_ratio"].device == "cuda:0"
    assert found.metrics["memory.peak_ratio"].value == 0.9


def test_share_is_not_measured_where_a_size_is_not_known() -> None:
    found = summary_of(card(0), held(0, GIB), held(1, 2 * GIB)).metrics
    assert found["memory.peak_bytes"].value == 2 * GIB
    assert found["memory.peak_ratio"].reason == "the size of cuda:1 is not recorded"


def test_registers_and_driver_calls_are_of_their_device() -> None:
    malloc = event(Kind.DEVICE_MALLOC, 1, bytes=3 * MIB)
    register = held(1, 9 * MIB, "torch.peak_reserved_bytes")
    found = summary_of(card(0), card(1), held(0, 4 * MIB), held(1, 5 * MIB), register, malloc)
    assert found.device_peaks == {0: 7 * MIB, 1: 9 * MIB}
    assert found.metrics["memory.peak_bytes"].value == 9 * MIB


def test_one_device_needs_no_name_whichever_it_is() -> None:
    found = summary_of(card(0), card(3, 40 * GIB), held(0, 0), held(3, 20 * GIB))
    peak = found.metrics["memory.peak_bytes"]
    assert (peak.value, peak.device_words) == (20 * GIB, None)
    assert found.metrics["memory.peak_ratio"].value == 0.5
    assert found.device_peaks == {3: 20 * GIB}


def test_the_drivers_count_is_in_the_sum_and_not_in_the_metric() -> None:
    rows = [card(0), card(1), held(0, GIB), held(1, GIB)]
    found = summary_of(*rows, held(1, 3 * GIB, "nvml.process_bytes"))
    assert found.device_peaks == {0: GIB, 1: 3 * GIB}
    assert found.metrics["memory.peak_bytes"].value == GIB


@pytest.mark.parametrize(
    ("limit", "actual"),
    [
        ("torch.reserved_bytes.peak <= 8 GiB", "20.0 GiB (cuda:1, the highest of 2 GPUs)"),
        ("torch.reserved_bytes.end <= 8 GiB", "20.0 GiB (cuda:1, the highest of 2 GPUs)"),
        ("torch.reserved_bytes.min >= 8 GiB", "2.00 GiB (cuda:0, the lowest of 2 GPUs)"),
        ("torch.reserved_bytes[cuda:0].peak <= 8 GiB", "2.00 GiB"),
        ("torch.allocated_bytes.peak <= 8 GiB", "3.00 GiB (cuda:0, the highest of 2 GPUs)"),
        ("torch.reserved_bytes.min / torch.allocated_bytes.end <= 1", "100.0% (cuda:0)"),
        (
            "torch.allocated_bytes.end / torch.reserved_bytes.peak <= 1",
            "10.0% (cuda:0 / cuda:1)",
        ),
        ("torch.reserved_bytes.peak / memory.peak_bytes <= 1", "100.0% (cuda:1)"),
        ("host.rss_bytes.peak <= 1 GiB", "1.00 MiB"),
    ],
)
def test_a_limit_on_a_reading_says_of_which_device_it_is(limit: str, actual: str) -> None:
    allocated = [held(device, 2 * GIB - device, "torch.allocated_bytes") for device in (0, 1)]
    register = held(0, 3 * GIB, "torch.peak_allocated_bytes")
    rss = sample("host.rss_bytes", 1, MIB)
    rows = [card(0), card(1), held(0, 2 * GIB), held(1, 20 * GIB), *allocated, register, rss]
    assert summary_of(*rows, limit=limit).verdicts[0].actual == actual


def test_growth_says_of_which_device_it_is() -> None:
    rows = [card(0), card(1)]
    for step in range(60):
        for device in (0, 1):
            size = GIB + step * device * MIB
            row = sample("torch.allocated_bytes", 10 * step + 1, size) | {"device": device}
            rows.append(row)
        rows.append(event(Kind.STEP, 10 * step + 5, step=step, duration_ns=5))
    found = summary_of(*rows, limit="torch.allocated_bytes.growth <= 1 KiB").verdicts[0]
    assert (found.verdict, found.of) == ("fail", "cuda:1, the highest of 2 GPUs")


def test_sizes_that_none_can_be_are_not_added_up_beyond_all_numbers() -> None:
    reading_names = ("torch.reserved_bytes", "device.peak_bytes", "host.rss_bytes")
    rows = [event(Kind.SAMPLE, 1, name=name, value=1e308, device=0) for name in reading_names]
    found = summary_of(card(0), *rows)
    assert found.metrics["memory.peak_bytes"].value == 2 << 50
    assert (found.device_bytes, found.host_bytes) == (2 << 50, 1 << 50)


def test_a_reading_without_a_device_is_of_the_first() -> None:
    rows = [card(0), sample("torch.reserved_bytes", 1, GIB), held(0, 2 * GIB)]
    limit = "torch.reserved_bytes.peak <= 8 GiB"
    assert summary_of(*rows, limit=limit).verdicts[0].actual == "2.00 GiB"


def test_several_devices_have_one_name() -> None:
    other = fact("cuda.1", {"name": "A100", "kind": "cuda", "total_bytes": 40 * GIB})
    assert summary_of().device_name == ""
    assert summary_of(card(0), held(0, GIB)).device_name == "H200"
    assert summary_of(card(0), card(1)).device_name == "2 × H200"
    assert summary_of(card(0), other, held(0, GIB), held(1, GIB)).device_name == "H200 and 1 more"
    assert summary_of(other, card(0), held(0, 0), held(1, GIB)).device_name == "A100"


def test_own_steps_are_those_after_the_seconds() -> None:
    rows = [fact("run.step_source", "second")]
    rows += [event(Kind.STEP, at * 10**9, step=at, duration_ns=10**9) for at in range(3)]
    assert len(fold(rows).own_steps) == 0
    rows += [fact("run.step_source", "optimizer"), event(Kind.STEP, 4 * 10**9, step=3)]
    assert fold(rows).own_steps.step.tolist() == [0]


def test_a_step_of_a_second_has_no_duration() -> None:
    rows = [fact("run.step_source", "second")]
    rows += [event(Kind.STEP, at * 10**9, step=at, duration_ns=10**9) for at in range(1, 5)]
    metric = summary_of(*rows).metrics["step.duration_ms"]
    assert (metric.value, metric.is_applicable) == (None, True)
    assert metric.reason == "the program shows no steps, so each second counts as one"
    own = [fact("run.step_source", "optimizer")]
    own += [event(Kind.STEP, at * 10**9, step=at, duration_ns=10**6) for at in range(5, 9)]
    assert summary_of(*rows, *own).metrics["step.duration_ms"].value == 1
    assert summary_of(*rows, *own).own_steps == 4
