"""llama.cpp and ONNX Runtime are told by name, with their own settings and none of torch's."""

from __future__ import annotations

import io

import pytest

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.log.explain import explain_log
from memscope.interop.oom_log.reader import read_log

LLAMA = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on device 1: "
    "cudaMalloc failed: out of memory"
)
RANGE = "alloc_tensor_range: failed to allocate CUDA1 buffer of size 10345250816"
WEIGHTS = "llama_model_load: error loading model: unable to allocate CUDA1 buffer"
CONTEXT = "llama_init_from_model: failed to initialize the context:"
ARENA = (
    "Non-zero status code returned while running Mul node. Name:'Mul_8702' Status Message: "
    "bfc_arena.cc:368 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) "
)


def explain(*lines: str) -> Explanation:
    return explain_log(read_log(io.BytesIO("\n".join(lines).encode())))


def settings(explanation: Explanation) -> list[str]:
    return [each.setting for each in explanation.help]


@pytest.mark.parametrize(
    ("after", "purpose", "first"),
    [
        (f"{RANGE}\n{WEIGHTS}", "weights", "--n-gpu-layers"),
        (f"{RANGE}\n{CONTEXT} failed to allocate buffer for kv cache", "KV cache", "--ctx-size"),
        (f"{RANGE}\n{CONTEXT} failed to allocate compute pp buffers", "compute buff", "--ctx-size"),
        ("ggml_gallocr_reserve_n: failed to allocate CUDA1 buffer", "compute buff", "--ctx-size"),
        ("llama_kv_cache_init: failed to allocate buffer for kv cache", "KV cache", "--ctx-size"),
        (RANGE, "", "--n-gpu-layers"),
        ("", "", "--n-gpu-layers"),
    ],
)
def test_llama_cpp_gets_its_own_flags(after: str, purpose: str, first: str) -> None:
    explanation = explain(LLAMA, after)
    assert explanation.device == 1
    assert explanation.sizes_bytes == {"requested": 9866 * 2**20}
    assert (f" for {purpose}" if purpose else "9.63 GiB, and") in explanation.why
    assert settings(explanation)[0].startswith(first)
    assert {"--n-gpu-layers lower (-ngl)", "--ctx-size lower (-c)"} <= set(settings(explanation))
    assert not [each for each in settings(explanation) if "ALLOC_CONF" in each]


def test_kv_cache_of_llama_cpp_gets_fewer_bits_before_other_settings() -> None:
    explanation = explain(LLAMA, RANGE, f"{CONTEXT} failed to allocate buffer for kv cache")
    first = ("--ctx-size", "--n-gpu-layers", "--cache-type-k", "--ubatch-size")
    for setting, start in zip(settings(explanation), first, strict=False):
        assert setting.startswith(start)


def test_recurrent_state_of_llama_cpp_follows_its_sequences() -> None:
    explanation = explain(LLAMA, RANGE, f"{CONTEXT} failed to allocate buffer for rs cache")
    assert "for recurrent state" in explanation.why
    assert settings(explanation)[0] == "--parallel lower (-np)"
    assert not [each for each in settings(explanation) if each.startswith("--c")]


def test_cudas_refusal_of_another_program_is_not_llamas() -> None:
    explanation = explain("my_kernel.cu:12 cudaMalloc failed: out of memory")
    assert explanation.diagnosis == "unknown"
    assert not [each for each in settings(explanation) if "ngl" in each]


def test_arena_of_onnx_runtime_is_told() -> None:
    explanation = explain(
        f"{ARENA}Failed to allocate memory for requested buffer of size 2830172160"
    )
    assert explanation.sizes_bytes == {"requested": 2830172160}
    assert "gpu_mem_limit of each session" in settings(explanation)


def test_limit_of_onnx_runtime_is_raised_where_it_ran_out() -> None:
    explanation = explain(
        f"{ARENA}Available memory of 0 is smaller than requested bytes of 135383040"
    )
    assert explanation.diagnosis == "memory_fraction"
    assert explanation.sizes_bytes == {"requested": 135383040, "free": 0}
    assert settings(explanation)[0] == "gpu_mem_limit higher"


def test_size_that_no_card_has_is_a_wrong_shape() -> None:
    text = f"{ARENA}Failed to allocate memory for requested buffer of size 4585490524328388608"
    assert explain(text).diagnosis == "request_too_large"
