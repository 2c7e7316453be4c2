"""`memscope doctor` on made-up machines, and on this one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memscope.cli.doctor import check_lines
from memscope.launch import checks
from memscope.launch.checks import NO, OK, PARTLY, Check
from memscope.probes.nvml.machine import read_machine
from tests.memscope.cli.verb_run import Run
from tests.memscope.probes.nvml.fake_machines import FakeCard, FakeMachine

GPU_TORCH = {"version": "2.9.1", "cuda": "12.8", "available": True, "devices": 1, "said": []}


def verdicts(machine: FakeMachine) -> dict[str, Check]:
    return {check.name: check for check in checks.check_nvml(read_machine(machine))}


def test_this_machine(memscope: Run) -> None:
    found = memscope("doctor", "--json")
    assert found.code == 0
    by_name = {check["name"]: check for check in json.loads(found.out)}
    assert by_name["memscope"]["verdict"] == OK
    for name in ("driver", "NVML", "torch", "CUDA", "CUPTI", "place", "name", "MEMSCOPE_RECORD"):
        check = by_name[name]
        assert check["verdict"] in (OK, PARTLY, NO)
        assert check["found"]


def test_modern_card_is_ok() -> None:
    assert verdicts(FakeMachine(FakeCard()))["GPU 0"].verdict == OK


@pytest.mark.parametrize(
    ("card", "verdict", "words"),
    [
        (FakeCard(failing={"version 2": "FunctionNotFound"}), PARTLY, "too old"),
        (FakeCard(failing={"memory": "NoPermission"}), NO, "refuses this user"),
        (FakeCard(failing={"handle": "GpuIsLost"}), NO, "fallen off the bus"),
        (FakeCard(processes={1 << 22: 5}), PARTLY, "not visible here"),
    ],
)
def test_gaps_of_a_card_have_reason_and_verdict(card: FakeCard, verdict: str, words: str) -> None:
    check = verdicts(FakeMachine(card))["GPU 0"]
    assert check.verdict == verdict
    assert words in check.found


def test_library_mismatch_has_its_remedy() -> None:
    check = verdicts(FakeMachine(init_error="LibRmVersionMismatch"))["NVML"]
    assert check.verdict == NO
    assert "Reload the nvidia module" in check.fix


def test_mig_instances_are_named_so() -> None:
    card = FakeCard(failing={"memory": "NoPermission"}, instances=(FakeCard(),))
    assert "MIG instance 0:0" in verdicts(FakeMachine(card))


@pytest.mark.parametrize(
    ("torch", "verdict", "words"),
    [
        (GPU_TORCH, OK, "1 devices"),
        (GPU_TORCH | {"cuda": None, "available": False}, NO, "without CUDA"),
        (GPU_TORCH | {"available": False, "said": ["driver too old"]}, NO, "driver too old"),
    ],
)
def test_cuda_as_torch_finds_it(torch: dict[str, object], verdict: str, words: str) -> None:
    check = list(checks.check_torch(torch, read_machine(FakeMachine(FakeCard()))))[-1]
    assert check.verdict == verdict
    assert words in check.found


def test_other_memscope_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_version", {"memscope": "0.1.2"}.get)
    check = checks.check_clash()
    assert check.verdict == NO
    assert "0.1.2" in check.found
    assert "pip uninstall" in check.fix


CUPTI_TORCH = GPU_TORCH | {"cupti": {"version": 130001, "names": True}}


@pytest.fixture
def _no_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID"):
        monkeypatch.delenv(name, raising=False)


def test_other_subscriber_of_cupti_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/other.so")
    check = checks.check_cupti(CUPTI_TORCH)
    assert check.verdict == NO
    assert "other.so" in check.found


@pytest.mark.usefixtures("_no_holder")
@pytest.mark.parametrize(
    ("torch", "verdict", "words"),
    [
        (CUPTI_TORCH, OK, "--cupti"),
        (GPU_TORCH | {"cupti": {"version": 22, "names": False}}, PARTLY, "names no libraries"),
        (GPU_TORCH, NO, "torch loads none"),
        ("not installed", NO, "torch loads none"),
    ],
)
def test_cupti_as_torch_brings_it(
    monkeypatch: pytest.MonkeyPatch, torch: dict[str, object] | str, verdict: str, words: str
) -> None:
    monkeypatch.setattr(checks, "build", lambda: None)
    check = checks.check_cupti(torch)
    assert (check.verdict, words in check.found) == (verdict, True)


@pytest.mark.usefixtures("_no_holder")
def test_cupti_without_a_compiler_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMSCOPE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    check = checks.check_cupti(CUPTI_TORCH)
    assert check.verdict == NO
    assert "gcc" in check.fix


def test_wsl_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.release", lambda: "5.15.0-microsoft-standard-WSL2")
    check = checks.check_place(read_machine(FakeMachine(FakeCard())))
    assert check.verdict == PARTLY
    assert "WSL" in check.found


def test_remedy_stands_below_its_check() -> None:
    lines = check_lines([Check("NVML", NO, "none", "Install it."), Check("torch", OK, "2")])
    assert lines[0].split() == ["no", "NVML", "none"]
    assert lines[1].strip() == "Install it."
    assert len(lines) == 3
