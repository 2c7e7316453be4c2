"""Libraries that find no room beside XLA's pool: the pool must shrink, never grow."""

from __future__ import annotations

import io

import pytest

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.log.explain import explain_log
from memscope.interop.oom_log.reader import read_log

FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
CUBIN = (
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to load in-memory CUBIN "
    "(compiled for a different GPU?).: {}"
)
DNN = "XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed. Look at the errors"
HANDLE = (
    "E0611 08:35:28.413281 146213 cuda_dnn.cc:535] Could not create cudnn handle: "
    "CUDNN_STATUS_INTERNAL_ERROR\n"
    "E0611 08:35:28.413482 146213 cuda_dnn.cc:539] Memory usage: 104857600 bytes free, "
    "17179344896 bytes total.\n"
)
MESSAGES = [
    CUBIN.format("CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    DNN,
    HANDLE,
    "INTERNAL: failed to create cublas handle: the resource allocation failed",
    "XlaRuntimeError: INTERNAL: CUBLAS_STATUS_ALLOC_FAILED",
    "JaxRuntimeError: INTERNAL: cuModuleLoadData failed with CUDA_ERROR_OUT_OF_MEMORY",
    "XlaRuntimeError: INTERNAL: cuGraphInstantiate failed: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
]


def explain(text: str) -> Explanation:
    return explain_log(read_log(io.BytesIO(text.encode())))


def settings(explanation: Explanation) -> list[str]:
    return [each.setting for each in explanation.help]


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize(("ahead", "fraction"), [("", "0.65"), (f"{FRACTION}=.9\n", "0.80")])
def test_pool_gets_smaller_never_larger(message: str, ahead: str, fraction: str) -> None:
    explanation = explain(ahead + message)
    fractions = [each for each in settings(explanation) if FRACTION in each]
    assert fractions == [f"{FRACTION}={fraction}"]
    assert f"{FRACTION} higher" in [each.setting for each in explanation.no_help]


def test_pool_that_grows_already_is_not_told_to() -> None:
    off = explain(f"XLA_PYTHON_CLIENT_PREALLOCATE=false\n{MESSAGES[0]}")
    assert not [each for each in settings(off) if "PREALLOCATE" in each]
    assert [each for each in settings(explain(MESSAGES[0])) if "PREALLOCATE" in each]


def test_program_that_does_not_load_for_another_reason_is_none() -> None:
    assert explain(CUBIN.format("CUDA_ERROR_NO_BINARY_FOR_GPU")).diagnosis is None


def test_amounts_beside_cudnns_message_are_told() -> None:
    explanation = explain(HANDLE)
    assert explanation.sizes_bytes == {"free": 104857600, "total": 17179344896}
    assert "100.00 MiB of 16.00 GiB was free" in explanation.why


def test_pool_that_ran_out_is_explained_before_a_library() -> None:
    pool = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 25769803776 bytes."
    for log in (f"{pool}\n{DNN}", f"{DNN}\n{pool}"):
        assert explain(log).sizes_bytes == {"requested": 25769803776}
