"""How two recordings were made, side by side: what differs, what is alike, what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from memscope.analysis.comparison.run_settings import ALWAYS, Setting, compare_settings
from memscope.analysis.summary.summary import Summary, summarize
from tests.memscope.analysis.build import HEADER, Event, fact, fold, state

POLICY = {"policy": "past", "keep": 4, "allocator": "pool", "unit": "slab", "prefetch": True}


def summary(*rows: Event, command: Sequence[str] = ("train.py",), **fields: object) -> Summary:
    found = summarize(fold(rows), state())
    header = replace(HEADER, command=tuple(command), **fields)  # type: ignore[arg-type]
    return replace(found, header=header)


def compare(before: Summary, after: Summary) -> dict[str, Setting]:
    return {each.name: each for each in compare_settings(before, after)}


def differing(before: Summary, after: Summary) -> list[str]:
    return [each.name for each in compare_settings(before, after) if each.differs]


@pytest.mark.parametrize(
    ("key", "data", "other", "name"),
    [
        ("policy", POLICY, {**POLICY, "policy": "pinned"}, "policy"),
        ("policy", POLICY, {**POLICY, "keep": None}, "keep"),
        ("policy", POLICY, {**POLICY, "allocator": "torch"}, "allocator"),
        ("policy", POLICY, {**POLICY, "unit": "entry"}, "unit"),
        ("policy", POLICY, {**POLICY, "prefetch": False}, "prefetch"),
        ("model", {"name": "a"}, {"name": "b"}, "model"),
        ("device.0", {"name": "H100"}, {"name": "H200"}, "device"),
        ("cuda.0", {"name": "H100"}, {"name": "H200"}, "device"),
        ("cuda.0", {"limit_bytes": 1 << 30}, {"limit_bytes": 1 << 31}, "device_limit_bytes"),
        ("versions", {"torch": "2.9.0"}, {"torch": "2.10.0"}, "torch"),
        ("versions", {"driver": "550"}, {"driver": "570"}, "driver"),
        ("versions", {"cuda": "12.8"}, {"cuda": "13.0"}, "cuda"),
        (
            "torch.allocator",
            {"settings": ""},
            {"settings": "expandable_segments:True"},
            "PYTORCH_CUDA_ALLOC_CONF",
        ),
        ("torch.allocator", {"backend": "native"}, {"backend": "async"}, "torch_backend"),
        ("cgroup", {"limit_bytes": None}, {"limit_bytes": 1 << 30}, "container_limit_bytes"),
        ("run.warmup_steps", 1, 2, "warmup_steps"),
        ("run.kind", "program", "q8-decode", "kind"),
        ("batch size", 8, 16, "fact batch size"),
        ("options", {"lr": 0.1}, {"lr": 0.2}, "fact options"),
    ],
)
def test_a_setting_that_changed_differs(key: str, data: object, other: object, name: str) -> None:
    before, after = summary(fact(key, data)), summary(fact(key, other))
    assert differing(before, after) == [name]
    assert differing(before, before) == []
    assert compare(before, before)[name].differs is False


def test_order_of_keys_is_no_difference() -> None:
    rows = fact("options", {"a": 1, "b": [2]}), fact("options", {"b": [2], "a": 1})
    assert differing(summary(rows[0]), summary(rows[1])) == []


def test_what_one_recording_does_not_say_is_not_known() -> None:
    found = compare(summary(fact("versions", {"torch": "2.9.0"})), summary())
    torch = found["torch"]
    assert (torch.before, torch.after, torch.differs) == ("2.9.0", None, None)
    assert torch.reason == "the second recording does not have it"
    back = compare(summary(), summary(fact("versions", {"torch": "2.9.0"})))["torch"]
    assert back.reason == "the first recording does not have it"


def test_what_a_reader_asks_for_is_named_where_neither_says_it() -> None:
    found = compare(summary(), summary())
    assert {name for name, each in found.items() if each.differs is None} == set(ALWAYS)
    assert {found[name].reason for name in ALWAYS} == {"neither recording has it"}


def test_what_is_not_set_is_known() -> None:
    """A window of no layers under "off", no allocator setting: said, and unlike not recorded."""
    rows = [fact("policy", {**POLICY, "policy": "off", "keep": None})]
    rows.append(fact("torch.allocator", {"settings": ""}))
    found = compare(summary(*rows), summary(*rows))
    assert found["keep"].differs is False
    assert found["PYTORCH_CUDA_ALLOC_CONF"].reason is None
    changed = compare(summary(*rows), summary(fact("policy", POLICY)))
    assert (changed["keep"].differs, changed["keep"].before) == (True, None)


def test_what_a_run_came_to_is_no_setting() -> None:
    rows = [
        fact("exit_code", 0),
        fact("link", {"pinned_bytes_per_s": 5}),
        fact("context.0", {"bytes": 7}),
        fact("nvml.others.0", {"12": {"bytes": 3}}),
        fact("cgroup.events", {"max": 0}),
        fact("probe.oom", {"watches": "x"}),
        fact("recorder.removed", {"rows": 1}),
        fact("watch.pace", {"seconds": 1}),
        fact("cupti.cost", {"seconds": 1}),
        fact("torch.private_pools", {"absent": "x"}),
    ]
    assert compare(summary(*rows), summary()).keys() == compare(summary(), summary()).keys()


def test_command_is_compared_without_where_our_output_goes() -> None:
    kind = fact("run.kind", "q8-decode")
    old = summary(kind, command=("/a/memscope", "decode", "Hi", "-o", "a.mscope", "--force"))
    new = summary(kind, command=("/b/memscope", "decode", "Hi", "--output=b.mscope", "--json"))
    assert differing(old, new) == []
    longer = summary(kind, command=("/b/memscope", "decode", "Hi", "--max-tokens", "9"))
    assert differing(old, longer) == ["command"]
    theirs = [summary(command=("train.py", "-o", name)) for name in "ab"]
    assert differing(*theirs) == ["command"], "what -o means to another program is not known"


def test_the_first_device_is_the_lowest_number() -> None:
    rows = [fact("cuda.10", {"name": "H200"}), fact("cuda.2", {"name": "H100"})]
    found = compare(summary(*rows), summary(*rows))
    assert (found["device"].before, found["devices"].before) == ("H100", 2)


def test_machine_and_rank_are_compared() -> None:
    old, new = summary(host="one", rank=0), summary(host="two", rank=1)
    assert differing(old, new) == ["host", "rank"]


@pytest.mark.parametrize("data", [None, 3, "text", [1], {"name": float("nan")}, {"name": [[]]}])
def test_facts_of_strangers_are_compared_or_left_out(data: object) -> None:
    keys = ("policy", "model", "versions", "device.0", "cuda.0", "torch.allocator", "host", "own")
    odd = summary(*(fact(key, data) for key in keys))
    assert differing(odd, odd) == []
    compare(odd, summary())
    assert compare(odd, odd)["fact own"].differs is False


def test_a_variable_that_was_set_differs_from_one_that_was_not():
    plain = summary(fact("environment", {}))
    other = summary(
        fact("environment", {"OMP_NUM_THREADS": "2", "PYTORCH_CUDA_ALLOC_CONF": "backend:x"})
    )
    assert differing(plain, other) == ["PYTORCH_CUDA_ALLOC_CONF", "OMP_NUM_THREADS"]
    found = compare(plain, other)["OMP_NUM_THREADS"]
    assert (found.before, found.after) == (None, "2")


def test_a_variable_is_unknown_where_none_are_recorded():
    found = compare(summary(), summary(fact("environment", {"OMP_NUM_THREADS": "2"})))
    assert found["OMP_NUM_THREADS"].differs is None
    assert found["PYTORCH_CUDA_ALLOC_CONF"].differs is None
