"""Servers that run out while they read weights: the model is too large, not what serves it."""

from __future__ import annotations

import io

import pytest

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.log.explain import explain_log
from memscope.interop.oom_log.reader import read_log

ENGINE = "(EngineCore_DP0 pid=270) INFO 10-02 11:20:31 [gpu_model_runner.py:2602] "
STARTS = f"{ENGINE}Starting to load model meta-llama/Llama-3.3-70B-Instruct..."
LOADED = f"{ENGINE}Model loading took 14.9889 GiB and 22.301145 seconds"
FRAME = f'{ENGINE}  File "vllm/model_executor/layers/linear.py", line 211, in create_weights'
MESSAGE = (
    f"{ENGINE}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has "
    "a total capacity of 79.15 GiB of which 601.25 MiB is free. Including non-PyTorch memory, this "
    "process has 78.56 GiB memory in use. Of the allocated memory 78.05 GiB is allocated by "
    "PyTorch, and 12.41 MiB is reserved by PyTorch but unallocated."
)
SGLANG = MESSAGE.replace(ENGINE, "[2026-04-19 12:21:55 TP0] sglang: ")


def explain(*lines: str) -> Explanation:
    return explain_log(read_log(io.BytesIO("\n".join(lines).encode())))


def settings(explanation: Explanation) -> list[str]:
    return [each.setting for each in explanation.help]


@pytest.mark.parametrize("sign", [STARTS, FRAME])
def test_model_that_is_read_needs_fewer_bytes_of_weights(sign: str) -> None:
    explanation = explain("vllm: tensor_parallel_size=2", sign, MESSAGE)
    assert explanation.diagnosis == "shortage"
    assert settings(explanation) == [
        "--tensor-parallel-size 4",
        "--quantization fp8, or a quantized model",
        "--cpu-offload-gb N",
        "a larger card",
    ]
    assert "max-num-seqs" in " ".join(each.setting for each in explanation.no_help)


def test_shortfall_of_one_allocation_is_not_the_models() -> None:
    explanation = explain(STARTS, MESSAGE)
    assert "This one allocation lacked 282.34 MiB" in explanation.why
    assert "the rest of the model was still to come" in explanation.why
    assert all(each.frees_bytes is None for each in explanation.help)


def test_model_that_was_read_leaves_the_servers_share_to_lower() -> None:
    explanation = explain(STARTS, LOADED, MESSAGE)
    assert "--max-num-seqs lower" in settings(explanation)
    assert "the rest of the model" not in explanation.why
    assert "--max-num-seqs lower" in settings(explain(MESSAGE, STARTS))


def test_sglang_has_flags_of_its_own() -> None:
    explanation = explain("[TP0] sglang: Load weight begin. avail mem=78.5 GB", SGLANG)
    assert settings(explanation)[:1] == ["--tp-size higher"]
    explanation = explain("[TP0] sglang: Load weight end. avail mem=1.5 GB", SGLANG)
    assert "--max-running-requests lower" in settings(explanation)


def test_program_that_is_no_server_gets_no_servers_flags() -> None:
    message = MESSAGE.replace(ENGINE, "")
    explanation = explain('File "train.py", line 3, in load_model', message)
    assert explanation.help[0].setting.startswith("smaller batch")
