"""Errors of libraries without numbers: the line is quoted, and room beside the pool is advised."""

from __future__ import annotations

import io

import pytest

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.log.explain import explain_log
from memscope.cli.text.explanation import explanation_lines
from memscope.interop.oom_log.reader import read_log

CUBLAS = "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
MESSAGES = [
    CUBLAS,
    "RuntimeError: CUDA error: out of memory",
    "RuntimeError: cuSOLVER error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `x`",
    "Cuda failure 2 'out of memory'",
]


def explain(*lines: str) -> Explanation:
    return explain_log(read_log(io.BytesIO("\n".join(lines).encode())))


def settings(explanation: Explanation) -> str:
    return " ".join(each.setting for each in explanation.help)


@pytest.mark.parametrize("message", MESSAGES)
def test_line_is_quoted_and_room_beside_the_pool_advised(message: str) -> None:
    explanation = explain("step 1", f"[rank3]: {message}", "x")
    assert explanation.diagnosis == "unknown"
    assert f'Line 2 says: "{message}".' in explanation.notes
    assert "left it no room" in explanation.why
    assert "set_per_process_memory_fraction" in settings(explanation)


@pytest.mark.parametrize(
    ("server", "flag"),
    [("vllm", "--gpu-memory-utilization lower"), ("sglang", "--mem-fraction-static lower")],
)
def test_servers_share_is_lowered(server: str, flag: str) -> None:
    assert settings(explain(f"{server} serve", CUBLAS)).startswith(flag)


def test_torchs_own_error_without_amounts_is_no_librarys() -> None:
    explanation = explain("torch.cuda.OutOfMemoryError: CUDA out of memory.")
    assert "left it no room" not in explanation.why
    assert "memory_fraction" not in settings(explanation)
    assert 'says: "torch.cuda.OutOfMemoryError: CUDA out of memory.".' in explanation.notes[0]


def test_hostile_line_is_quoted_as_text_and_cut() -> None:
    explanation = explain("a" * 3000 + "\x1b[31m\u202e" + CUBLAS + "b" * 3000)
    assert "CUBLAS_STATUS_ALLOC_FAILED" in explanation.notes[0]
    assert len(explanation.notes[0]) < 250
    assert all(line.isprintable() for line in explanation_lines(explanation))


def test_message_with_amounts_is_not_quoted() -> None:
    explanation = explain("DefaultCPUAllocator: not enough memory: you tried to allocate 64 bytes.")
    assert not [note for note in explanation.notes if "says" in note]
