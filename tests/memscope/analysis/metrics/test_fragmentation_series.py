"""Memory that torch held without use, over time and in a recorded map."""

from __future__ import annotations

import pytest

from memscope.analysis.metrics.fragmentation_series import unused_memory
from memscope.analysis.metrics.table import metrics
from memscope.events import Kind
from tests.memscope.analysis.build import Event, event, fact, fold
from tests.memscope.analysis.recorded_maps import map_rows
from tests.memscope.fake_allocator import MIB, FakeAllocator

READINGS = ((100, 150, 20), (120, 150, 10), (120, 200, 60))


def samples(device: int = 0, *, has_split: bool = True) -> list[Event]:
    """Allocated, reserved and inactive split bytes at three moments."""
    found = []
    for moment, sizes in enumerate(READINGS):
        names = ("allocated", "reserved", "inactive_split")[: 3 if has_split else 2]
        found += [
            event(Kind.SAMPLE, 1000 * moment + n, name=f"torch.{name}_bytes", bytes=size)
            | {"device": device}
            for n, (name, size) in enumerate(zip(names, sizes, strict=False))
        ]
    return found


@pytest.mark.parametrize("split", [0, 1, 4])
def test_unused_bytes_are_reserved_less_allocated(split: int) -> None:
    found = unused_memory(fold(samples(), split=split))
    assert found is not None
    assert found.unused.last.tolist() == [50, 30, 80]
    assert found.split is not None
    assert found.split.last.tolist() == [20, 10, 60]


def test_each_device_has_its_own_readings() -> None:
    other = [row | {"bytes": 7 * row["bytes"]} for row in samples(device=1)]
    rows = sorted([*samples(), *other], key=lambda row: row["t_ns"])
    found = unused_memory(fold(rows))
    assert found is not None
    assert (found.device, found.unused.last.tolist()) == (0, [50, 30, 80])
    assert found.split is not None
    assert found.split.last.tolist() == [20, 10, 60]


def test_what_torch_does_not_count_is_absent_with_its_reason() -> None:
    expandable = fact("torch.allocator", {"is_expandable": True})
    found = unused_memory(fold([expandable, *samples()]))
    assert found is not None
    assert (found.split, found.reason) == (
        None,
        "torch does not count free parts of expandable segments",
    )
    found = unused_memory(fold(samples(has_split=False)))
    assert found is not None
    assert (found.split, found.reason) == (None, "free parts of segments are not recorded")


def test_nothing_sampled_is_nothing_unused() -> None:
    assert unused_memory(fold([event(Kind.MARK, 1, name="a")])) is None


def test_external_fragmentation_is_that_of_the_recorded_map() -> None:
    allocator = FakeAllocator()
    allocator.free(allocator.alloc(256 * MIB))
    made = [allocator.alloc(64 * MIB) for _ in range(4)]
    allocator.free(made[0])
    allocator.free(made[2])
    allocator.free(allocator.alloc(900 * MIB, pool=(0, 3)))  # serves no other pool
    found = metrics(fold(map_rows(allocator)))["fragmentation.external"]
    assert found.value == 0.5


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (
            [event(Kind.MARK, 1)],
            "the allocator's map is recorded only when memory runs out",
        ),
        (
            [fact("device.0", {"kind": "host", "name": "laptop"})],
            "torch's caching allocator serves GPUs, and this is a host device",
        ),
    ],
)
def test_without_a_map_the_metric_says_why(rows: list[Event], reason: str) -> None:
    found = metrics(fold(rows))["fragmentation.external"]
    assert (found.value, found.reason) == (None, reason)


def test_a_full_map_is_not_fragmented() -> None:
    allocator = FakeAllocator()
    allocator.alloc(256 * MIB)
    found = metrics(fold(map_rows(allocator)))["fragmentation.external"]
    assert (found.value, found.is_applicable) == (None, False)
