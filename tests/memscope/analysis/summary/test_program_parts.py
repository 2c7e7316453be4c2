"""What there can be to see of a program, and what it holds."""

from __future__ import annotations

import pytest

from memscope.analysis.metrics.weight_pool import why_no_calls
from memscope.analysis.summary.program import describe_program
from memscope.events import Kind
from tests.memscope.analysis.build import Event, event, fact, fold
from tests.memscope.analysis.torch_runs import GIB, GPU, MIB, run_program, sample


@pytest.mark.parametrize(
    "row",
    [
        fact("policy", {"policy": "past", "keep": 2}),
        fact("device.0", {"name": "host", "kind": "host"}),
        event(Kind.UPLOAD, 1, step=0, layer=0, bytes=1, value=7),
        event(Kind.EVICT, 1, step=0, layer=0, bytes=1, value=7),
    ],
    ids=["policy", "own device", "upload", "eviction"],
)
def test_a_window_is_known_from_the_first_word_of_it(row: Event) -> None:
    assert describe_program(fold([row])).has_window


def test_a_program_of_torch_has_no_window_and_no_driver_calls() -> None:
    timeline = fold(run_program(5, lambda step: GIB, lambda step: 2 * GIB))
    assert not describe_program(timeline).has_window
    assert why_no_calls(timeline) is not None
    call = event(Kind.DEVICE_MALLOC, 1, step=0, bytes=MIB)
    assert why_no_calls(fold([call])) is None
    assert why_no_calls(fold([call | {"device": 0}])) is not None, "a library's, by CUPTI"


def test_each_device_has_a_series_of_its_own_and_latest_adds_them_up() -> None:
    rows = [GPU]
    for at, (first, second) in enumerate(((5, 1), (7, 3)), 1):
        rows.append(sample("torch.allocated_bytes", at, first * MIB))
        rows.append(sample("torch.allocated_bytes", at, second * MIB) | {"device": 1})
    rows.append(event(Kind.SAMPLE, 9, name="host.rss_bytes", bytes=GIB))
    program = describe_program(fold(rows))
    found = {(each.reading_name, each.device): each.series for each in program.series}
    assert found["torch.allocated_bytes", 0].last.tolist() == [5 * MIB, 7 * MIB]
    assert found["torch.allocated_bytes", 1].last.tolist() == [1 * MIB, 3 * MIB]
    assert found["host.rss_bytes", None].peak == GIB
    assert program.latest_bytes == {"torch.allocated_bytes": 10 * MIB, "host.rss_bytes": GIB}
    assert program.on_several == {"torch.allocated_bytes"}


def test_what_was_read_without_a_device_is_the_first_ones() -> None:
    rows = [
        sample("torch.reserved_bytes", 1, 4 * MIB),
        event(Kind.SAMPLE, 2, name="torch.reserved_bytes", bytes=6 * MIB),
        sample("torch.reserved_bytes", 3, 5 * MIB),
    ]
    (found,) = describe_program(fold(rows)).series
    assert found.device is None
    assert found.series.maximum.tolist() == [4 * MIB, 6 * MIB, 5 * MIB]
    assert describe_program(fold(rows)).latest_bytes == {"torch.reserved_bytes": 5 * MIB}
    second = sample("torch.reserved_bytes", 4, MIB) | {"device": 1}
    several = describe_program(fold([*rows, second])).series
    assert [(each.device, each.series.readings) for each in several] == [(0, 3), (1, 1)]
