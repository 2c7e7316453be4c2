"""The table of policies, row by row, from events alone."""

from __future__ import annotations

import pytest

from memscope.analysis.metrics.residency import least_uploads
from memscope.analysis.metrics.table import metrics
from tests.memscope.analysis.build import fold
from tests.memscope.analysis.sweeps import HEAD_BYTES, SLAB_BYTES, run_sweeps

L = 30


def measure(policy: str, keep: int, **options: object) -> dict[str, float | None]:
    found = metrics(fold(run_sweeps(policy, L, keep, **options)))
    return {name.partition(".")[2]: metric.value for name, metric in found.items()}


@pytest.mark.parametrize("unit", ["slab", "entry"])
@pytest.mark.parametrize("keep", [1, 2, 4, 12, 15, 20, 29])
def test_past_keeps_the_end_of_a_sweep_and_the_start_of_the_next(keep: int, unit: str) -> None:
    seen = measure("past", keep, unit=unit)
    assert seen["uploads_per_step"] == L - keep
    assert seen["entries_at_step_end"] == 7 * keep + 1
    assert seen["peak_layers"] == min(2 * keep, L)
    assert seen["peak_entries"] == 7 * min(2 * keep, L) + 1
    assert seen["resident_bytes"] == keep * SLAB_BYTES + HEAD_BYTES


@pytest.mark.parametrize("keep", [1, 4, 12])
def test_prefetch_adds_the_layer_in_flight_in_bytes_alone(keep: int) -> None:
    plain, ahead = measure("past", keep), measure("past", keep, is_prefetching=True)
    for name in ("uploads_per_step", "entries_at_step_end", "peak_entries", "peak_layers"):
        assert ahead[name] == plain[name]
    assert (plain["in_flight_bytes"], ahead["in_flight_bytes"]) == (0, SLAB_BYTES)
    assert ahead["held_bytes"] == plain["held_bytes"] + SLAB_BYTES


@pytest.mark.parametrize(("keep", "uploads"), [(1, 30), (4, 30), (12, 30), (20, 30), (29, 29)])
def test_symmetric_is_flat_in_keep(keep: int, uploads: int) -> None:
    seen = measure("symmetric", keep)
    assert seen["uploads_per_step"] == uploads
    assert seen["peak_layers"] == keep


@pytest.mark.parametrize("keep", [1, 4, 12, 29])
def test_lru_is_flat_in_keep(keep: int) -> None:
    seen = measure("lru", keep)
    assert seen["uploads_per_step"] == L
    assert seen["peak_layers"] == keep


@pytest.mark.parametrize(("keep", "uploads"), [(1, 30), (2, 30), (4, 28), (12, 20), (29, 3)])
def test_pinned_streams_the_rest_through_its_ring(keep: int, uploads: int) -> None:
    seen = measure("pinned", keep)
    assert seen["uploads_per_step"] == uploads
    assert seen["peak_layers"] == keep


def test_off_uploads_nothing_after_warmup() -> None:
    seen = measure("off", L)
    assert seen["uploads_per_step"] == 0
    assert seen["entries_at_step_end"] == seen["peak_entries"] == 211
    assert seen["avoidable_uploads"] == 0


@pytest.mark.parametrize(("policy", "keep", "held"), [("past", 4, 8), ("symmetric", 4, 4)])
def test_avoidable_uploads_compare_at_equal_peak(policy: str, keep: int, held: int) -> None:
    seen = measure(policy, keep)
    least = L * (L - held) / (L - 1)
    assert seen["avoidable_uploads"] == pytest.approx(seen["uploads_per_step"] - least)


def test_pinned_is_within_two_of_the_least() -> None:
    for keep in range(2, L):
        avoidable = measure("pinned", keep)["avoidable_uploads"]
        assert avoidable is not None
        assert 0 <= avoidable <= 2.07, keep


@pytest.mark.parametrize(
    ("slabs", "least"), [(0, 30.0), (1, 30.0), (15, 15 * 30 / 29), (30, 0.0), (31, 0.0)]
)
def test_least_uploads(slabs: int, least: float) -> None:
    assert least_uploads(L, slabs) == pytest.approx(least)


def test_least_uploads_of_one_layer_is_defined() -> None:
    assert (least_uploads(1, 0), least_uploads(1, 1)) == (0.0, 0.0)


def test_the_pool_makes_no_driver_call_from_the_third_step_on() -> None:
    seen = measure("past", 4)
    assert (seen["calls_per_step"], seen["hit_rate"], seen["hit_rate[slab]"]) == (0, 1, 1)


def test_naive_makes_two_driver_calls_for_each_layer_moved() -> None:
    seen = measure("past", 4, allocator="naive")
    assert seen["calls_per_step"] == 2 * 26
    assert seen["hit_rate"] is None
