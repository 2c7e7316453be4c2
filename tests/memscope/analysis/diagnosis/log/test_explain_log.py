"""One diagnosis a message, the bar of the card, and advice that can be computed."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.failed_request import lower_share, raise_share
from memscope.analysis.diagnosis.log.explain import explain_log, explain_message
from memscope.analysis.diagnosis.recording.explain import explain_timeline
from memscope.events import Kind
from memscope.interop.oom_log.formats.torch_message import TorchKind, TorchMessage
from memscope.interop.oom_log.reader import read_log
from memscope.interop.oom_log.sizes import Size
from memscope.plan import Needs, Plan, Window
from memscope.reader.state import State, StateName
from tests.memscope.analysis.build import Event, event, fact, fold
from tests.memscope.interop.oom_log.messages import (
    EXAMPLE,
    FORMS,
    Amounts,
    pools_form,
    retry_form,
    sizes_bytes,
)
from tests.paths import DATA

CASES = sorted((DATA / "oom").glob("*.txt"))
GIB, MIB = 2**30, 2**20
COMPLETE = State(StateName.COMPLETE, 1, 1, 0, 0)


def explain(text: str) -> Explanation:
    return explain_log(read_log(io.BytesIO(text.encode())))


def message(**gib: float | None) -> TorchMessage:
    """A message of torch with numbers in GiB, of a card of 80 GiB."""
    known = {"total": 80.0, **gib}
    sizes = {
        name: Size(round(value * GIB), 0.005 * GIB)
        for name, value in known.items()
        if value is not None
    }
    return TorchMessage(TorchKind.CACHING, "CUDA", 0, is_sentence=True, **sizes)


def diagnose(**gib: float | None) -> str | None:
    return explain_message(message(**gib)).diagnosis


def setting(explanation: Explanation, start: str) -> Any:
    (found,) = [each for each in explanation.help if each.setting.startswith(start)]
    return found


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_handed_cases_have_their_diagnosis_and_amounts(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())
    found = explain_log(read_log(io.BytesIO(path.read_bytes()))).to_json()
    assert found["diagnosis"] in (*str(expected["diagnosis"]).split("|"), expected["diagnosis"])
    for name in expected.keys() - {"diagnosis", "why"}:
        slack = 0.005 * GIB if expected[name] >= GIB else 0.005 * MIB
        slack *= 2 if name == "reserved_bytes" else 1
        assert found[name] == pytest.approx(expected[name], abs=slack + 1), name


@pytest.mark.parametrize(
    ("gib", "diagnosis"),
    [
        ({"requested": 81, "free": 70, "allocated": 1, "reserved": 1}, "request_too_large"),
        ({"requested": 2, "free": 1, "allocated": 70, "reserved": 73}, "fragmentation"),
        ({"requested": 5, "free": 1, "allocated": 76, "reserved": 78}, "shortage"),
        ({"requested": 2, "free": 9, "allocated": 60, "reserved": 70}, "not_device_memory"),
        ({"requested": 2, "free": 0, "allocated": 90, "reserved": 91}, "oversubscribed"),
        ({"requested": 2, "free": 1, "allocated": 40, "reserved": 41}, "outside"),
        ({"requested": 20, "free": 1, "allocated": 40, "reserved": 55}, "outside"),
        (
            {"requested": 40, "free": 1, "allocated": 40, "reserved": 55},  # 24 would not do
            "shortage",
        ),
        (
            {"requested": 2, "free": 40, "allocated": 29, "reserved": 30, "limit": 30},
            "memory_fraction",
        ),
        (
            {"requested": 2, "free": 40, "allocated": 25, "reserved": 30, "limit": 30},
            "fragmentation",
        ),
        (
            {"requested": 2, "free": 1, "allocated": 60, "reserved": 78, "active": 77},
            "pending_frees",
        ),
        (
            {"requested": 2, "free": 1, "allocated": 77, "reserved": 77, "private_pools": 6},
            "private_pools",
        ),
        (
            {"requested": 2, "free": 1, "allocated": 77, "reserved": 77, "private_pools": 0.1},
            "shortage",
        ),
        ({"requested": 2, "free": 1}, "unknown"),
        ({"requested": 9, "allocated": 75, "reserved": 76}, "shortage"),
        ({"requested": 2, "allocated": 40, "reserved": 50}, "unknown"),
    ],
)
def test_amounts_give_one_diagnosis(gib: dict[str, float], diagnosis: str) -> None:
    assert diagnose(**gib) == diagnosis


@pytest.mark.parametrize(
    ("requested", "total", "allocated", "free", "reserved", "diagnosis"),
    [
        ("2.26 GiB", "8.00 GiB", "3.00 GiB", "3.03 GiB", "4.00 GiB", "not_device_memory"),
        ("12.50 MiB", "10.92 GiB", "8.57 MiB", "9.28 GiB", "10.00 MiB", "not_device_memory"),
        ("1.63 GiB", "44.56 GiB", "27.91 GiB", "565.31 MiB", "27.93 GiB", "outside"),
        ("984.00 MiB", "47.50 GiB", "22.15 GiB", "68.88 MiB", "22.16 GiB", "outside"),
        ("2.00 MiB", "8.00 GiB", "203.44 MiB", "0 bytes", "6.44 GiB", "fragmentation"),
        ("200.00 MiB", "14.61 GiB", "13.76 GiB", "37.12 MiB", "13.77 GiB", "shortage"),
        ("35.31 GiB", "60.97 GiB", "26.13 GiB", "33.81 GiB", "26.61 GiB", "shortage"),
        ("2.00 GiB", "8.00 GiB", "17.20 GiB", "0 bytes", "17.20 GiB", "oversubscribed"),
    ],
)
def test_amounts_of_public_reports(
    requested: str, total: str, allocated: str, free: str, reserved: str, diagnosis: str
) -> None:
    text = (
        f"CUDA out of memory. Tried to allocate {requested} (GPU 0; {total} total capacity; "
        f"{allocated} already allocated; {free} free; {reserved} reserved in total by PyTorch)"
    )
    assert explain(text).diagnosis == diagnosis


def test_less_free_than_a_page_beyond_the_request_is_no_evidence() -> None:
    close = {"requested": 0.02, "allocated": 60.0, "reserved": 60.0, "total": 61.0}
    assert diagnose(**close, free=0.0205) == "shortage"
    assert diagnose(**{**close, "reserved": 60.5}, free=0.0205) == "fragmentation"


def test_rounding_alone_does_not_make_a_request_too_large() -> None:
    assert diagnose(requested=80.005, free=79.0, allocated=0.2, reserved=0.3) == "shortage"


def test_own_process_of_a_container_is_found_by_its_size() -> None:
    base = message(requested=5, free=1, allocated=70, reserved=71)
    renamed = replace(base, other_processes=(Size(78 * GIB),))
    beside = replace(base, other_processes=(Size(6 * GIB),))
    assert "is this program itself" in " ".join(explain_message(renamed).notes)
    assert "is this program itself" not in " ".join(explain_message(beside).notes)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@given(expected=sizes_bytes)
@settings(max_examples=30, deadline=None)
def test_every_message_is_explained_and_its_bar_adds_up(
    form: Callable[[Amounts], str], expected: Amounts
) -> None:
    explanation = explain(form(expected))
    assert explanation.diagnosis is not None
    assert explanation.why
    json.dumps(explanation.to_json(), allow_nan=False)
    assert all(share.bytes > 0 for share in explanation.shares)
    total = explanation.sizes_bytes.get("total", 0)
    if explanation.shares and total:
        held = max(
            total,
            explanation.sizes_bytes.get("reserved", explanation.sizes_bytes.get("allocated", 0)),
        )
        assert total <= explanation.bar_bytes <= held


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_bar_of_each_case_is_the_card(path: Path) -> None:
    explanation = explain_log(read_log(io.BytesIO(path.read_bytes())))
    if explanation.shares:
        whole = max(explanation.sizes_bytes["total"], explanation.sizes_bytes.get("reserved", 0))
        assert explanation.bar_bytes == whole


def test_advice_for_fragmentation_is_the_setting_of_that_torch() -> None:
    base = message(requested=2, free=1, allocated=70, reserved=73)
    new = explain_message(replace(base, variable="PYTORCH_ALLOC_CONF"))
    assert setting(new, "PYTORCH_ALLOC_CONF=expandable_segments:True").frees_bytes == 3 * GIB
    old = explain_message(replace(base, is_sentence=False))
    assert setting(old, "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb").frees_bytes == 3 * GIB
    hip = explain_message(replace(base, backend="HIP"))
    assert setting(hip, "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True")


def test_setting_that_was_on_already_is_not_advised() -> None:
    text = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py\n"
    explanation = explain(text + pools_form(replace(EXAMPLE, private=0, limit=2**37)))
    assert explanation.diagnosis == "fragmentation"
    assert not [each for each in explanation.help if "expandable" in each.setting]
    assert [each for each in explanation.no_help if "expandable" in each.setting]


def test_no_allocator_setting_helps_a_shortage() -> None:
    explanation = explain_message(message(requested=5, free=1, allocated=76, reserved=78))
    assert not [each for each in explanation.help if "ALLOC_CONF" in each.setting]
    assert [each for each in explanation.no_help if "ALLOC_CONF" in each.setting]
    assert setting(explanation, "smaller batch").frees_bytes == 2 * GIB


def test_memory_fraction_is_raised_to_what_is_needed() -> None:
    explanation = explain_message(
        message(requested=2, free=40, allocated=29, reserved=30, limit=30.5)
    )
    advice = setting(explanation, "torch.cuda.set_per_process_memory_fraction(0.400)")
    assert advice.frees_bytes == 1.5 * GIB


@pytest.mark.parametrize(
    ("program", "flag"),
    [
        ("vllm serve m --gpu-memory-utilization 0.95", "--gpu-memory-utilization 0.90"),
        ("python -m sglang.launch_server --mem-fraction-static 0.85", "--mem-fraction-static 0.80"),
    ],
)
def test_servers_are_advised_in_their_own_flags(program: str, flag: str) -> None:
    short = replace(
        EXAMPLE, requested=5 * GIB, cached=0, free=GIB, process=0, private=0, limit=2**37
    )
    explanation = explain(f"{program}\n{pools_form(replace(short, allocated=77 * GIB))}")
    assert explanation.diagnosis == "shortage"
    assert setting(explanation, flag).frees_bytes == pytest.approx(4 * GIB, abs=0.01 * GIB)


def test_graphs_of_vllm_are_counted_once_they_are_known() -> None:
    log = "vllm Estimated CUDA graph memory: 1.97 GiB total\n" + pools_form(
        replace(EXAMPLE, requested=9 * GIB, allocated=75 * GIB, limit=2**37)
    )
    assert setting(explain(log), "--enforce-eager").frees_bytes == round(1.97 * GIB)
    eager = explain("vllm serve --enforce-eager\n" + log)
    assert not [each for each in eager.help if each.setting == "--enforce-eager"]


@pytest.mark.parametrize(
    ("log", "start", "frees"),
    [
        (
            "total_gpu_memory (80.00GiB) x gpu_memory_utilization (0.90) = 72.00GiB\n"
            "To serve at least one request with the models's max seq len (40960), (10.00 GiB KV "
            "cache is needed, which is larger than the available KV cache memory (8.00 GiB).",
            "--gpu-memory-utilization 0.93",
            round(0.03 * 80 * GIB),
        ),
        (
            "To serve at least one request with the models's max seq len (40960), (10.00 GiB KV "
            "cache is needed, which is larger than the available KV cache memory (8.00 GiB).",
            "--kv-cache-dtype fp8",
            5 * GIB,
        ),
        (
            "Load weight begin. avail mem=80.00 GB\n"
            "Load weight end. type=X, dtype=torch.bfloat16, avail mem=20.00 GB, mem usage=60 GB\n"
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            "--mem-fraction-static 0.76",
            None,
        ),
        (
            "ValueError: Free memory on device (59.32/79.15 GiB) on startup is less than desired "
            "GPU memory utilization (0.9, 71.24 GiB).",
            "--gpu-memory-utilization 0.74",
            None,
        ),
        (
            "max_num_seqs (256) exceeds available Mamba cache blocks (242). Each",
            "--max-num-seqs 242",
            None,
        ),
    ],
)
def test_refusals_are_answered_with_amounts(log: str, start: str, frees: int | None) -> None:
    assert setting(explain(log), start).frees_bytes == frees


def test_share_that_cannot_be_had_is_not_advised() -> None:
    explanation = explain(
        "total_gpu_memory (80.00GiB) x gpu_memory_utilization (0.95) = 76.00GiB\n"
        "To serve at least one request with the models's max seq len (9), (30.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (8.00 GiB)."
    )
    assert not [each for each in explanation.help if "utilization" in each.setting]
    assert [each for each in explanation.no_help if "utilization" in each.setting]


def test_server_that_asks_for_too_much_of_an_empty_card_is_told_so() -> None:
    text = (
        "Free memory on device (7.10/8.0 GiB) on startup is less than desired GPU memory "
        "utilization (0.95, 7.6 GiB)."
    )
    assert explain(text).diagnosis == "server_budget"


@given(expected=sizes_bytes)
@settings(max_examples=50, deadline=None)
def test_shares_move_by_what_is_missing(expected: Amounts) -> None:
    total, missing = expected.total, expected.requested % expected.total
    assert (0.9 - lower_share(0.9, missing, total)) * total >= missing * (1 - 1e-6) - 1
    assert (raise_share(0.5, missing, total) - 0.5) * total >= missing * (1 - 1e-6) - 1


def test_message_that_says_most_of_the_last_failure_is_explained() -> None:
    torch_says = pools_form(replace(EXAMPLE, allocated=78 * GIB, cached=0, limit=2**37))
    log = f"{torch_says}\nRuntimeError: CUDA error: out of memory\n"
    assert explain(log).diagnosis == "shortage"
    late = explain(f"{torch_says}\n" + "step\n" * 5000 + "RuntimeError: CUDA error: out of memory")
    assert late.diagnosis == "unknown"
    assert "2 different messages" in " ".join(late.notes)


def test_growth_from_message_to_message_is_noted() -> None:
    texts = [
        pools_form(replace(EXAMPLE, allocated=held * GIB, cached=0, limit=2**37))
        for held in (60, 65, 70)
    ]
    assert "Allocated memory rose" in " ".join(explain("\n".join(texts)).notes)
    assert "Allocated memory rose" not in " ".join(explain("\n".join(reversed(texts))).notes)


def test_retries_alone_are_no_failure_that_is_known() -> None:
    explanation = explain(retry_form(EXAMPLE))
    assert explanation.diagnosis == "unknown"
    assert explanation.sizes_bytes["free"] == EXAMPLE.free


def test_memory_summary_after_the_message_shows_pending_frees() -> None:
    text = pools_form(replace(EXAMPLE, allocated=60 * GIB, cached=18 * GIB, limit=2**37))
    summary = (
        "\n| Allocated memory      |   61440 MiB |   61440 MiB |\n"
        "| Active memory         |   78848 MiB |   78848 MiB |\n"
    )
    assert explain(text).diagnosis == "fragmentation"
    assert explain(text + summary).diagnosis == "pending_frees"


@pytest.mark.parametrize("text", ["KeyError: 'x'\n", "all is well\n"])
def test_text_without_a_memory_error_says_so_and_quotes(text: str) -> None:
    explanation = explain(text)
    assert explanation.diagnosis is None
    assert text.strip() in explanation.notes[0]


def plan_facts(limit: int, policy: str = "off") -> list[Event]:
    needs = Needs(layers=30, slab_bytes=4 * MIB, head_bytes=10 * MIB, kv_bytes=MIB)
    plan = Plan(needs, Window(policy), limit)
    device = {"name": "host", "kind": "host", "total_bytes": 8 * GIB, "limit_bytes": limit}
    return [fact("device.0", device), fact("plan", plan.facts())]


def oom_row(limit: int, total: int = 8 * GIB, scope: str = "engine") -> Event:
    data = {
        "scope": scope,
        "free": limit - 98 * MIB,
        "allocated": 98 * MIB,
        "reserved": 98 * MIB,
        "total": total,
        "limit": limit,
    }
    return event(Kind.OOM, 5, step=0, bytes=4 * MIB, data=data)


def test_recording_whose_plan_did_not_fit_names_a_window_that_does() -> None:
    timeline = fold([*plan_facts(100 * MIB), oom_row(100 * MIB)])
    explanation = explain_timeline(timeline, COMPLETE)
    assert explanation.diagnosis == "server_budget"
    assert setting(explanation, "--policy past --keep ").frees_bytes > 0
    assert setting(explanation, "--device-limit 131MiB")
    assert explanation.bar_bytes == 100 * MIB


def test_no_limit_is_advised_that_the_device_has_not() -> None:
    timeline = fold([*plan_facts(100 * MIB), oom_row(100 * MIB, total=120 * MIB)])
    explanation = explain_timeline(timeline, COMPLETE)
    assert setting(explanation, "--policy past --keep ")
    assert not [each for each in explanation.help if "--device-limit" in each.setting]


def test_recording_under_a_limit_that_the_plan_fits_blames_the_limit() -> None:
    limit = 100 * MIB
    rows = [*plan_facts(1 * GIB), oom_row(limit)]
    assert explain_timeline(fold(rows), COMPLETE).diagnosis == "memory_fraction"


def test_recording_without_a_limit_has_a_shortage() -> None:
    rows = [oom_row(100 * MIB, total=100 * MIB)]
    assert explain_timeline(fold(rows), COMPLETE).diagnosis == "shortage"


def test_lost_requests_alone_are_a_budget() -> None:
    explanation = explain_timeline(fold([oom_row(GIB, scope="request")] * 3), COMPLETE)
    assert explanation.diagnosis == "server_budget"
    assert explanation.why.startswith("3 requests")


def test_recording_without_an_error_has_no_diagnosis() -> None:
    explanation = explain_timeline(fold(plan_facts(GIB)), State(StateName.CUT, 1, 1, 0, 0))
    assert explanation.diagnosis is None
    assert "partial" in " ".join(explanation.notes)


_HOSTILE = (None, -1, 2**70, True, "x", [], {"a": 1}, 1.5, 0)


@pytest.mark.parametrize("value", _HOSTILE, ids=repr)
def test_hostile_recorded_values_are_explained_all_the_same(value: object) -> None:
    keys = ("free", "allocated", "reserved", "total", "limit")
    for broken in (*itertools.combinations(keys, 1), keys):
        row = oom_row(GIB)
        row["data"] = {**row["data"], **dict.fromkeys(broken, value)}
        plans = [{**plan_facts(GIB)[1]["data"], key: value} for key in ("layers", "keep", "policy")]
        for data in (value, *plans):
            explain_timeline(fold([fact("plan", data), row]), COMPLETE).to_json()
