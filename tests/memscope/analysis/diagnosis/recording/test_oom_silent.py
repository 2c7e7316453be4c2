"""Recorded errors without numbers: what the readings just before them say of the card."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.recording.explain import explain_timeline, oom_sentence
from memscope.cli.text.explanation import explanation_lines
from memscope.events import Kind
from tests.memscope.analysis.build import Event, event, fact, fold, state

MIB, GIB = 1 << 20, 1 << 30
SECOND = 1_000_000_000
AT = 7 * SECOND
TOTAL = 80 * GIB
CUBLAS = "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
LIBRARIES = [
    CUBLAS,
    "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "AcceleratorError: CUDA error: out of memory",
    "RuntimeError: Triton Error [CUDA]: out of memory",
]
OTHER = {"4242": {"bytes": 60 * GIB, "command": "vllm"}}


def card(
    device: int = 0, t_ns: int = AT - SECOND // 20, *, total: int = TOTAL, **held: int
) -> list[Event]:
    """Readings of one moment: ``free``, ``process``, ``allocated``, ``reserved``, in bytes."""
    reading_names = {"free": "nvml", "process": "nvml", "allocated": "torch", "reserved": "torch"}
    rows = [event(Kind.SAMPLE, t_ns, name="nvml.total_bytes", bytes=total, device=device)]
    for name, size in held.items():
        reading_name = f"{reading_names[name]}.{name}_bytes"
        rows.append(event(Kind.SAMPLE, t_ns, name=reading_name, bytes=size, device=device))
    return rows


def failure(text: str = CUBLAS, t_ns: int = AT, **fields: Any) -> Event:
    data = {"scope": "engine", "source": "exception", "error": text}
    return event(Kind.OOM, t_ns, data=data, **fields)


def others(listed: object = OTHER, device: int = 0) -> Event:
    return event(Kind.FACT, SECOND, name=f"nvml.others.{device}", data=listed)


def explain(*rows: Event, split: int = 0) -> Explanation:
    return explain_timeline(fold(list(rows), split=split), state())


FILLED_BY_OTHERS = card(free=300 * MIB, process=19 * GIB, allocated=17 * GIB, reserved=18 * GIB)
FILLED_BY_CACHE = card(free=300 * MIB, process=79 * GIB, allocated=30 * GIB, reserved=78 * GIB)
FILLED_BY_TENSORS = card(
    free=300 * MIB, process=79 * GIB, allocated=78 * GIB - 9 * MIB, reserved=78 * GIB
)
ROOMY = card(free=40 * GIB, process=39 * GIB, allocated=30 * GIB, reserved=38 * GIB)


@pytest.mark.parametrize("text", LIBRARIES)
@pytest.mark.parametrize(
    ("readings", "diagnosis"),
    [
        (FILLED_BY_OTHERS, "outside"),
        (FILLED_BY_CACHE, "torch_cache"),
        (FILLED_BY_TENSORS, "shortage"),
        (ROOMY, "unknown"),
    ],
    ids=["others", "cache", "tensors", "roomy"],
)
def test_who_filled_the_card_is_known(text: str, readings: list[Event], diagnosis: str) -> None:
    explanation = explain(others(), *readings, failure(text))
    assert explanation.diagnosis == diagnosis
    assert "50.0 ms before the error" in explanation.why
    assert "Usually" not in explanation.why
    assert explanation.device == 0


@pytest.mark.parametrize("split", [0, 1, 3])
def test_other_processes_are_named_with_their_bytes(split: int) -> None:
    explanation = explain(others(), *FILLED_BY_OTHERS, failure(), split=split)
    assert "process 4242, vllm: 60.00 GiB" in explanation.why
    assert "300.00 MiB free" in explanation.why
    assert explanation.help[0].setting == "stop what else runs on the card"
    assert explanation.help[0].frees_bytes == TOTAL - 300 * MIB - 19 * GIB
    assert "4242" in explanation.help[0].reason
    assert explanation.bar_bytes == explanation.sizes_bytes["total"] == TOTAL


def test_cache_is_advised_with_amounts() -> None:
    explanation = explain(*FILLED_BY_CACHE, failure())
    assert "48.00 GiB of it was unused in its cache" in explanation.why
    first, fraction, *_ = explanation.help
    assert (first.setting, first.frees_bytes) == ("torch.cuda.empty_cache()", 48 * GIB)
    assert fraction.setting == "torch.cuda.set_per_process_memory_fraction(0.96)"


def test_a_share_leaves_room_on_the_card_there_is() -> None:
    grown = card(free=600 * MIB, allocated=30 * GIB, reserved=80 * GIB - 100 * MIB)
    explanation = explain(*grown, failure())
    (fraction,) = [each.setting for each in explanation.help if "fraction" in each.setting]
    assert fraction == "torch.cuda.set_per_process_memory_fraction(0.98)", "0.99 leaves no 1 GiB"


def test_no_share_follows_from_more_than_the_card_has() -> None:
    beyond = card(free=MIB, allocated=30 * GIB, reserved=18 * TOTAL)
    explanation = explain(*beyond, failure())
    assert explanation.diagnosis == "unknown"
    assert "1440.00 GiB, 1410.00 GiB of it unused, which is more than the card has" in (
        explanation.why
    )
    shares = [each.setting for each in explanation.help if "fraction" in each.setting]
    assert shares == ["torch.cuda.set_per_process_memory_fraction(0.9)"]


def test_cache_that_cannot_be_given_back_is_not_blamed() -> None:
    name = "torch.inactive_split_bytes"
    splits = event(Kind.SAMPLE, AT - 2, name=name, bytes=48 * GIB - MIB, device=0)
    assert explain(*FILLED_BY_CACHE, splits, failure()).diagnosis == "shortage"
    pages = fact("torch.allocator", {"settings": "expandable_segments:True"})
    assert explain(pages, *FILLED_BY_CACHE, splits, failure()).diagnosis == "torch_cache"


def test_own_tensors_are_a_shortage() -> None:
    explanation = explain(*FILLED_BY_TENSORS, failure())
    assert "Tensors held 77.99 GiB" in explanation.why
    assert "torch did it" not in str(explanation.no_help)


def test_plenty_free_is_said_and_nothing_claimed() -> None:
    explanation = explain(*ROOMY, failure())
    assert "40.00 GiB free" in explanation.why
    assert "the request was larger" in explanation.why
    assert not [each for each in explanation.help if "fraction" in each.setting]


def test_few_bytes_take_a_whole_page_of_the_driver() -> None:
    nccl = "DistBackendError: NCCL error\nLast error:\nFailed to CUDA calloc async 608 bytes"
    full = card(free=MIB, process=79 * GIB, allocated=30 * GIB, reserved=78 * GIB)
    explanation = explain(*full, failure(nccl))
    assert explanation.diagnosis == "torch_cache"
    assert "The error asked for 608 bytes" in explanation.why


def test_readings_after_the_error_do_not_count() -> None:
    later = card(t_ns=AT + 1, free=70 * GIB, process=GIB, allocated=0, reserved=0)
    gone = event(Kind.FACT, AT + 2, name="nvml.others.0", data={})
    for split in (0, 1, 4):
        explanation = explain(others(), *FILLED_BY_OTHERS, failure(), *later, gone, split=split)
        assert "process 4242, vllm: 60.00 GiB" in explanation.why
        assert explanation.sizes_bytes["free"] == 300 * MIB
    early = explain(*later, failure())
    assert early.diagnosis == "unknown"
    assert "free" not in early.sizes_bytes


def test_last_of_several_errors_has_its_own_readings() -> None:
    later = card(
        t_ns=AT + SECOND,
        free=MIB,
        process=79 * GIB,
        allocated=78 * GIB - 9 * MIB,
        reserved=78 * GIB,
    )
    rows = [others({}), *ROOMY, failure(), *later, failure(t_ns=AT + SECOND + 1)]
    for split in (0, 1, 5):
        assert explain(*rows, split=split).diagnosis == "shortage"


@pytest.mark.parametrize("torch", [{}, {"reserved": 78 * GIB}])
def test_what_was_not_read_of_torch_is_not_taken_for_nothing(torch: dict[str, int]) -> None:
    """The program itself holds the card, in whatever part of it."""
    explanation = explain(*card(free=300 * MIB, process=79 * GIB, **torch), failure())
    assert explanation.diagnosis == "unknown"
    assert "other programs and the driver held 724.00 MiB" in explanation.why
    assert not any("0 bytes" in each.reason for each in explanation.no_help)
    filled = explain(*card(free=300 * MIB, process=19 * GIB), failure())
    assert filled.diagnosis == "outside"
    assert not any("0 bytes" in each.reason for each in filled.no_help)


def test_torch_read_long_before_the_card_is_not_set_against_it() -> None:
    torch = card(t_ns=AT - 4 * SECOND, allocated=GIB, reserved=2 * GIB)
    explanation = explain(*torch, *card(free=300 * MIB, process=79 * GIB), failure())
    assert explanation.diagnosis == "unknown"
    assert "outside torch" not in explanation.why


@pytest.mark.parametrize("split", [0, 1])
def test_readings_of_no_device_are_not_those_of_a_card(split: int) -> None:
    nowhere = card(-1, free=0, reserved=GIB)
    assert explain(*nowhere, failure(), split=split).device is None
    assert explain(*nowhere, *FILLED_BY_OTHERS, failure(), split=split).device == 0


def test_old_reading_has_its_age_and_proves_nothing() -> None:
    old = card(t_ns=AT - 3 * SECOND, free=0, process=19 * GIB, allocated=GIB, reserved=GIB)
    assert "3.00 s before the error" in explain(*old, failure()).why
    explanation = explain(*old, failure(t_ns=AT + 60 * SECOND))
    assert explanation.diagnosis == "unknown"
    assert "1 min 03 s before the error" in explanation.why


def test_device_is_the_only_one_used() -> None:
    idle = card(1, free=TOTAL, process=0)
    explanation = explain(others(), *FILLED_BY_OTHERS, *idle, failure())
    assert (explanation.diagnosis, explanation.device) == ("outside", 0)
    named = explain(
        *ROOMY, *card(1, free=0, allocated=71 * GIB, reserved=71 * GIB), failure(device=1)
    )
    assert (named.diagnosis, named.device) == ("shortage", 1)


def test_device_is_not_guessed_among_several() -> None:
    second = card(1, free=0, process=GIB, allocated=GIB, reserved=GIB)
    explanation = explain(*ROOMY, *second, failure())
    assert explanation.diagnosis == "unknown"
    assert "It is unknown which device it was: this program used 0, 1." in explanation.notes
    assert "free" not in explanation.sizes_bytes


def test_process_that_may_be_this_one_is_not_blamed() -> None:
    """In a container the driver lists this process by another number."""
    readings = card(free=300 * MIB, allocated=17 * GIB, reserved=18 * GIB)
    listed = {"7": {"bytes": 19 * GIB, "command": None}, "8": {"bytes": 60 * GIB, "command": None}}
    explanation = explain(others(listed), *readings, failure())
    assert explanation.diagnosis == "outside"
    assert "process 8: 60.00 GiB; process 7: 19.00 GiB; one may be this one" in explanation.why
    assert "process" not in explanation.help[0].reason
    assert "which programs they are" in explanation.unknown[0]


def test_what_this_program_holds_beside_torch_is_told_apart() -> None:
    readings = card(free=300 * MIB, process=79 * GIB, allocated=GIB, reserved=2 * GIB)
    explanation = explain(*readings, failure())
    assert explanation.diagnosis == "outside"
    assert "this program outside torch 77.00 GiB" in explanation.why
    settings = [each.setting for each in explanation.help]
    assert "stop what else runs on the card" not in settings
    assert "memscope run --cupti" in settings


def test_size_of_the_request_decides_where_it_is_known() -> None:
    text = "RuntimeError: CUDA error: out of memory: tried to allocate 2.00 GiB"
    readings = card(free=1800 * MIB, process=78 * GIB, allocated=76 * GIB, reserved=77 * GIB)
    assert explain(*readings, failure(text)).diagnosis == "shortage"
    assert explain(*readings, failure()).diagnosis == "unknown"


def test_torchs_own_error_is_not_blamed_on_its_cache() -> None:
    text = "OutOfMemoryError: CUDA out of memory."
    assert explain(*FILLED_BY_CACHE, failure(text)).diagnosis == "unknown"
    assert explain(*FILLED_BY_TENSORS, failure(text)).diagnosis == "shortage"


def test_runtimes_reading_stands_in_for_nvml() -> None:
    rows = [
        fact("cuda.0", {"total_bytes": TOTAL, "name": "NVIDIA H100"}),
        event(Kind.SAMPLE, AT - 9, name="mem_get_info.free_bytes", bytes=MIB, device=0),
        *card(allocated=76 * GIB, reserved=76 * GIB)[1:],
    ]
    explanation = explain(*rows, failure())
    assert explanation.diagnosis == "shortage"
    assert "NVIDIA H100 (80.00 GiB) had 1.00 MiB free" in explanation.why


def test_torchs_own_error_names_who_is_outside() -> None:
    sizes_bytes = {"free": 300 * MIB, "total": TOTAL, "allocated": 17 * GIB, "reserved": 18 * GIB}
    data = {"scope": "engine", "source": "observer", **sizes_bytes}
    error = event(Kind.OOM, AT, bytes=2 * GIB, device=0, data=data)
    named = explain(others(), *FILLED_BY_OTHERS, error)
    assert named.diagnosis == "outside"
    assert "Other processes on the card: process 4242, vllm: 60.00 GiB." in named.notes
    assert not [each for each in named.unknown if "who holds it" in each]
    unnamed = explain(error)
    assert [each for each in unnamed.unknown if "who holds it" in each]
    assert not [each for each in unnamed.notes if "Other processes" in each]


def test_error_with_amounts_or_without_readings_is_as_in_a_log() -> None:
    assert "Usually" in explain(failure()).why
    host = "RuntimeError: DefaultCPUAllocator: not enough memory: you tried to allocate 64 bytes."
    assert explain(*FILLED_BY_OTHERS, failure(host)).diagnosis == "not_device_memory"


def test_request_lost_later_leaves_the_readings() -> None:
    lost = event(Kind.OOM, AT + 5, request=3, data={"scope": "request"})
    assert explain(others(), *FILLED_BY_OTHERS, failure(), lost).diagnosis == "outside"


def test_summary_says_the_same() -> None:
    rows = [others(), *FILLED_BY_OTHERS, failure()]
    assert oom_sentence(fold(rows)) == f"Out of memory. {explain(*rows).why}"


@pytest.mark.parametrize(
    "listed",
    [
        None,
        [],
        {"1": 5},
        {"1": {"bytes": "x"}},
        {"\x1b[31m": {"bytes": -1, "command": "\x1b]0;x\n"}},
        {"9" * 400: {"bytes": 2**70, "command": "c" * 9000}},
    ],
)
def test_hostile_facts_stay_text(listed: object) -> None:
    for number in ("0", "-1", "x", "9" * 500):
        hostile = event(Kind.FACT, 1, name=f"nvml.others.{number}", data=listed)
        explanation = explain(hostile, *FILLED_BY_OTHERS, failure())
        json.dumps(explanation.to_json(), allow_nan=False)
        shown = explanation_lines(explanation)
        assert all(line.isprintable() for line in shown)
        assert len("\n".join(shown)) < 6000
