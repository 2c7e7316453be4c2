"""What facts say, read as typed values."""

from __future__ import annotations

from typing import Any

import pytest

from memscope.analysis.timeline.facts import (
    MAX_VERSIONS,
    read_devices,
    read_model,
    read_plan,
    read_versions,
)
from memscope.facts import DeviceFact, Fact, is_own_fact, probe_fact
from memscope.plan import Needs, Plan, Window

PLAN = Plan(Needs(28, 10, 5, 3, 2, 1), Window("past", 4, True), 400)


def test_what_the_program_says_of_itself_counts():
    facts = {
        "versions": {"torch": "2.11.0", "python": "3.12.3"},
        "torch.version": {"torch": "2.11", "cuda": "13.0"},
        "nvml.driver": {"driver": "580.1"},
    }
    assert read_versions(facts) == {
        "driver": "580.1",
        "torch": "2.11.0",
        "cuda": "13.0",
        "python": "3.12.3",
    }


def test_facts_of_another_shape_are_passed_by():
    assert read_versions({"versions": "2.11", "torch.version": ["2"], "nvml.driver": None}) == {}
    many = {str(number): "1" for number in range(10 * MAX_VERSIONS)}
    assert len(read_versions({"versions": many})) == MAX_VERSIONS


def test_a_plan_reads_as_it_was_written():
    assert read_plan({"plan": PLAN.facts()}) == PLAN


@pytest.mark.parametrize("name", ["kv_bytes", "fixed_bytes", "headroom_bytes"])
def test_a_plan_may_leave_parts_out(name: str):
    data = {key: value for key, value in PLAN.facts().items() if key != name}
    plan = read_plan({"plan": data})
    assert plan is not None
    assert getattr(plan.needs, name) == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"layers": 0},
        {"layers": 1 << 20},
        {"slab_bytes": None},
        {"kv_bytes": -1},
        {"head_bytes": True},
        {"limit_bytes": "2 GiB"},
        {"keep": "4"},
        {"policy": "best"},
        {"policy": ["past"]},
    ],
)
def test_a_plan_that_makes_no_sense_is_none(changed: dict[str, Any]):
    assert read_plan({"plan": PLAN.facts() | changed}) is None
    assert read_plan({"plan": [changed]}) is None


def test_devices_are_those_of_torch_unless_the_program_names_none():
    cuda = {"name": "H200", "kind": "cuda", "total_bytes": 8, "limit_bytes": None}
    devices = read_devices({"cuda.1": cuda, "device.0": {"name": "host", "kind": "host"}})
    assert [(index, each.name) for index, each in devices.items()] == [(0, "host"), (1, "H200")]
    assert devices[1].usable_bytes == 8


def test_a_model_of_no_layers_has_none():
    assert read_model({"model": {"layers": 0, "name": 3}}).layers is None
    assert read_model({"model": {"layers": 0, "name": 3}}).name is None


@pytest.mark.parametrize(
    "key", [*Fact, DeviceFact.CUDA.of(3), probe_fact("oom"), "nvml.later", "cupti.later"]
)
def test_keys_of_memscope_are_its_own(key: str):
    assert is_own_fact(key)


@pytest.mark.parametrize("key", ["learning_rate", "cuda", "cuda.x", "device.0.x", "models"])
def test_other_keys_are_of_the_program(key: str):
    assert not is_own_fact(key)
