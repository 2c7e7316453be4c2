"""JAX's out-of-memory errors get JAX's advice, never torch's."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memscope.analysis.diagnosis.explanation import Advice, Explanation
from memscope.analysis.diagnosis.log.explain import explain_log
from memscope.interop.oom_log.reader import read_log

GIB = 2**30
ERROR = (
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
    "allocate {} bytes.\n"
)
BUFFERS = """BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:  3.50GiB
              constant allocation:    48.5KiB
        maybe_live_out allocation:    2.25GiB
     preallocated temp allocation:    4.44GiB
                 total allocation:   10.19GiB
"""
POOL = (
    "2026-05-01 10:00:00.000000: W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator "
    "(GPU_1_bfc) ran out of memory trying to allocate {size} (rounded to 10737418240)requested by "
    "op \n"
)
DUMP = """2026-05-01 10:00:00.1: I external/xla/xla/tsl/framework/bfc_allocator.cc:1112] Stats:
Limit:                     {limit}
InUse:                     {in_use}
MaxInUse:                  {in_use}
NumAllocs:                       4242
"""
TORCH_WORDS = ("expandable_segments", "empty_cache", "PYTORCH", "max_split_size", "torch.")


def explain(text: str) -> Explanation:
    return explain_log(read_log(io.BytesIO(text.encode())))


def help_for(explanation: Explanation, start: str) -> Advice:
    (found,) = [each for each in explanation.help if each.setting.startswith(start)]
    return found


def failed(in_use_gib: float, wanted_gib: float, limit_gib: float = 60.0, ahead: str = "") -> str:
    dump = DUMP.format(limit=round(limit_gib * GIB), in_use=round(in_use_gib * GIB))
    pool = POOL.format(size=f"{wanted_gib:.2f}GiB")
    return ahead + pool + dump + ERROR.format(round(wanted_gib * GIB))


MESSAGES = [
    (ERROR.format(10 * GIB), 10 * GIB, None),
    (
        f"RuntimeError: Resource exhausted: Out of memory while trying to allocate {GIB} bytes.",
        GIB,
        None,
    ),
    (f"XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating {GIB} bytes.", GIB, None),
    (
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
        "40.00GiB.",
        40 * GIB,
        None,
    ),
    (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.99GiB "
        "(3206250496B) on device ordinal 3",
        3206250496,
        3,
    ),
    (POOL.format(size="10.00GiB"), 10 * GIB, 1),
    (
        "E0501 10:00:00.1 7 external/xla/xla/stream_executor/cuda/cuda_executor.cc:800] failed to "
        "allocate 2.00GiB (2147483648 bytes) from device: RESOURCE_EXHAUSTED: : "
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        2 * GIB,
        None,
    ),
    (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory "
        "in memory space hbm. Used 21.50G of 15.50G hbm. Exceeded hbm capacity by 6.00G.",
        round(21.5 * GIB),
        None,
    ),
    (
        "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 1.50G. That "
        "was not possible. There are 1.25G free.; (0x0x0_HBM0)",
        round(1.5 * GIB),
        None,
    ),
]


@pytest.mark.parametrize(("log", "requested", "device"), MESSAGES)
def test_every_format_is_read_and_answered_with_jaxs_advice(
    log: str, requested: int | None, device: int | None
) -> None:
    explanation = explain(log)
    assert explanation.sizes_bytes.get("requested") == requested
    assert explanation.device == device
    assert help_for(explanation, "jax.jit(..., donate_argnums=")
    assert help_for(explanation, "smaller batch")
    shown = json.dumps(explanation.to_json())
    assert not [word for word in TORCH_WORDS if word in shown]


def test_error_alone_names_jaxs_settings_and_what_is_not_known() -> None:
    explanation = explain(ERROR.format(10 * GIB))
    assert explanation.diagnosis == "unknown"
    assert help_for(explanation, "XLA_PYTHON_CLIENT_MEM_FRACTION=0.95").frees_bytes is None
    assert help_for(explanation, "XLA_PYTHON_CLIENT_PREALLOCATE=false")
    assert "TF_CPP_MIN_LOG_LEVEL=0" in " ".join(explanation.unknown)


def test_buffers_of_the_program_show_what_donation_frees() -> None:
    explanation = explain(ERROR.format(10 * GIB) + BUFFERS)
    assert help_for(explanation, "jax.jit").frees_bytes == round(2.25 * GIB)
    assert "3.50 GiB of arguments, 2.25 GiB of outputs, 4.44 GiB of temp" in explanation.why


@pytest.mark.parametrize(
    ("in_use", "wanted", "ahead", "diagnosis", "setting"),
    [
        (50, 8, "", "fragmentation", "XLA_PYTHON_CLIENT_MEM_FRACTION=0.95"),
        (55, 8, "", "memory_fraction", "XLA_PYTHON_CLIENT_MEM_FRACTION=0.79"),
        (55, 8, "XLA_CLIENT_MEM_FRACTION=.5\n", "memory_fraction", "XLA_CLIENT_MEM_FRACTION=0.53"),
        (55, 40, "", "shortage", ""),
        (55, 8, "XLA_PYTHON_CLIENT_MEM_FRACTION=0.94\n", "shortage", ""),
        (
            50,
            8,
            'os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"\n',
            "fragmentation",
            "XLA_PYTHON_CLIENT_PREALLOCATE=true",
        ),
    ],
)
def test_dump_of_the_pool_gives_a_diagnosis(
    in_use: float, wanted: float, ahead: str, diagnosis: str, setting: str
) -> None:
    explanation = explain(failed(in_use, wanted, ahead=ahead))
    assert explanation.diagnosis == diagnosis
    assert explanation.device == 1
    assert explanation.sizes_bytes["limit"] == explanation.bar_bytes == 60 * GIB
    assert explanation.sizes_bytes["allocated"] == in_use * GIB
    fractions = [each.setting for each in explanation.help if "XLA_" in each.setting]
    assert not fractions if not setting else setting in fractions


def test_program_that_cannot_fit_a_tpu_is_a_shortage() -> None:
    explanation = explain(MESSAGES[7][0])
    assert explanation.diagnosis == "shortage"
    assert explanation.sizes_bytes["total"] == round(15.5 * GIB)
    assert help_for(explanation, "smaller batch").frees_bytes == 6 * GIB
    assert not [each for each in explanation.help if "XLA_" in each.setting]


def test_warning_that_is_no_failure_is_none() -> None:
    warning = POOL.format(size="2.00GiB").strip() + (
        " The caller indicates that this is not a failure, but this may mean that there could be "
        "performance gains if more memory were available.\n"
    )
    assert explain(warning).diagnosis is None


def test_pool_of_one_process_is_not_told_as_anothers() -> None:
    log = "".join(
        f"[pod/w-{pod}/main] {line}\n" for pod in range(2) for line in failed(55, 8).splitlines()
    )
    explanation = explain(log)
    assert [failure.process for failure in explanation.failures] == ["w-0", "w-1"]
    assert "limit" not in explanation.sizes_bytes


def test_tensorflow_gets_neither_jaxs_nor_torchs_advice() -> None:
    explanation = explain(
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating "
        "tensor with shape[8,16,4096,4096] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:2 by allocator GPU_2_bfc [Op:Softmax]"
    )
    assert (explanation.diagnosis, explanation.device) == ("unknown", 2)
    shown = json.dumps(explanation.to_json())
    assert not [word for word in (*TORCH_WORDS, "jax", "XLA_PYTHON") if word in shown]
    assert help_for(explanation, "TF_GPU_ALLOCATOR=cuda_malloc_async")


def test_torch_on_xla_gets_neither_jaxs_nor_cudas_settings() -> None:
    explanation = explain(
        '  File "/venv/torch_xla/core/xla_model.py", line 1, in mark_step\n'
        "RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: Attempting to allocate 1.50G. That "
        "was not possible. There are 1.25G free.; (0x0x0_HBM0)"
    )
    assert explanation.diagnosis == "shortage"
    assert help_for(explanation, "smaller batch").frees_bytes == GIB // 4
    shown = json.dumps(explanation.to_json())
    assert not [word for word in (*TORCH_WORDS, "jax", "XLA_") if word in shown]


def test_torch_in_a_program_that_names_jax_keeps_torchs_advice() -> None:
    explanation = explain(
        "XLA_PYTHON_CLIENT_PREALLOCATE=false python train.py\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 79.18 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this "
        "process has 78.18 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by "
        "PyTorch, and 6.00 GiB is reserved by PyTorch but unallocated."
    )
    assert explanation.diagnosis == "fragmentation"
    assert help_for(explanation, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments")


@given(
    wanted=st.integers(1, 2**46),
    limit=st.integers(2**20, 2**40),
    in_use=st.integers(0, 2**41),
    junk=st.text(max_size=60),
)
@settings(max_examples=60, deadline=None)
def test_any_amounts_are_explained(wanted: int, limit: int, in_use: int, junk: str) -> None:
    log = ERROR.format(wanted) + junk + "\n" + DUMP.format(limit=limit, in_use=in_use)
    explanation = explain(log)
    assert explanation.sizes_bytes["requested"] == wanted
    assert explanation.diagnosis in ("fragmentation", "memory_fraction", "shortage", "unknown")
    json.dumps(explanation.to_json(), allow_nan=False)
