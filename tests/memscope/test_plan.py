"""What fits: the arithmetic before a run."""

from __future__ import annotations

import json

import pytest

from memscope.plan import (
    Needs,
    Plan,
    Window,
    advice,
    fitting_keep,
    peak_layers,
    with_keep,
)

MIB = 2**20
NEEDS = Needs(layers=30, slab_bytes=4 * MIB, head_bytes=30 * MIB, kv_bytes=6 * MIB)


def make_plan(limit_mib: int, policy: str = "past", keep: int | None = 4, **options: bool) -> Plan:
    return Plan(NEEDS, Window(policy, keep, **options), limit_mib * MIB)


@pytest.mark.parametrize(
    ("policy", "keep", "in_time", "ahead"),
    [
        ("off", None, 30, 30),
        ("past", 4, 8, 9),
        ("past", 14, 28, 29),
        ("past", 15, 30, 30),
        ("past", 29, 30, 30),
        ("symmetric", 4, 4, 5),
        ("symmetric", 30, 30, 30),
        ("pinned", 4, 4, 4),
        ("pinned", 1, 1, 1),
    ],
)
def test_peak_layers(policy, keep, in_time, ahead):
    assert peak_layers(Window(policy, keep), 30) == in_time
    assert peak_layers(Window(policy, keep, prefetch=True), 30) == ahead


def test_needed_bytes_are_slabs_at_the_peak_and_what_is_always_there():
    needs = Needs(30, 4, head_bytes=100, kv_bytes=20, fixed_bytes=3, headroom_bytes=7)
    plan = Plan(needs, Window("past", 4, prefetch=True), 166)
    assert plan.weights_bytes == 9 * 4 + 100
    assert plan.needed_bytes == 9 * 4 + 130
    assert plan.is_fitting
    assert not Plan(needs, plan.window, 165).is_fitting


def test_fitting_keep_is_the_largest_that_fits():
    plan = make_plan(96)  # room for 15 slabs beside 36 MiB
    assert fitting_keep(plan) == 7
    assert with_keep(plan, 7).is_fitting
    assert not with_keep(plan, 8).is_fitting
    assert fitting_keep(make_plan(96, prefetch=True)) == 7
    assert fitting_keep(make_plan(96, "pinned")) == 15
    assert fitting_keep(make_plan(96, "symmetric", prefetch=True)) == 14


def test_fitting_keep_is_every_layer_where_the_model_fits():
    assert fitting_keep(make_plan(156)) == 30
    assert fitting_keep(make_plan(155)) == 14


def test_no_keep_fits_below_one_window():
    assert fitting_keep(make_plan(43)) is None
    assert fitting_keep(make_plan(44)) == 1
    assert fitting_keep(make_plan(156, "off", None)) is None


def test_advice_names_the_keep_that_fits():
    sentence = "keep ≤ 7 fits under --policy past in 96.0 MiB (needs 92.0 MiB)."
    assert advice(make_plan(96, keep=20)) == sentence
    assert advice(make_plan(96, "off", None)) == sentence


def test_advice_turns_to_pinned_where_no_keep_fits():
    assert advice(make_plan(43)) == (
        "No keep fits under --policy past in 43.0 MiB; "
        "--policy pinned --keep 1 does (needs 40.0 MiB)."
    )


def test_advice_says_what_the_smallest_window_needs():
    assert advice(make_plan(30)) == (
        "No window fits in 30.0 MiB: the smallest, --policy pinned --keep 1, needs 40.0 MiB."
    )


def test_advice_on_a_plan_that_fits_is_that_plan():
    assert advice(make_plan(96)) == "--policy past --keep 4 fits in 96.0 MiB (needs 68.0 MiB)."


def test_facts_are_json_and_hold_the_metrics():
    facts = json.loads(json.dumps(make_plan(96, keep=8).facts()))
    assert facts["peak_layers"] == 16
    assert facts["needed_bytes"] == 100 * MIB
    assert facts["limit_bytes"] == 96 * MIB
    assert facts["fits"] is False
    assert facts["policy"] == "past"
