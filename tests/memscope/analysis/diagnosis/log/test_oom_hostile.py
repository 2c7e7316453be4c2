"""Numbers in a log that cannot be: what is impossible is absent, and what is left is explained."""

from __future__ import annotations

import io
import json
import random

import pytest

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.log.explain import explain_log
from memscope.cli.text.explanation import explanation_lines
from memscope.interop.oom_log.reader import read_log

SIZES = ("0GiB", "-5GiB", "1e999GiB", "nan GiB", "99999999999999999999TiB", "1B", "10.84 GiB")
NUMBERS = ("0", "-1", "nan", "inf", "1e999", "0.9", "..", "99999999999999999999", "\u0663")
# {s}: a size, {n}: a number.
LINES = (
    "CUDA out of memory. Tried to allocate {s}. GPU 0 has a total capacity of {s} of which {s} is "
    "free. Of the allocated memory {s} is allocated by PyTorch, and {s} is reserved by PyTorch but "
    "unallocated.",
    "MPS backend out of memory (MPS allocated: {s}, other allocations: {s}, max allowed: {s}). "
    "Tried to allocate {s} on private pool.",
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate {s}.",
    "parameter allocation: {s} maybe_live_out allocation: {s} preallocated temp allocation: {s}",
    "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used {n}G of {n}G hbm.",
    "RESOURCE_EXHAUSTED: Attempting to allocate {n}G. That was not possible. There are {n}G free.",
    "Allocator (GPU_0_bfc) ran out of memory trying to allocate {s} (rounded to {n})requested",
    "Limit:   {n}",
    "InUse:   {n}",
    "XLA_PYTHON_CLIENT_MEM_FRACTION={n}",
    "vllm --gpu-memory-utilization {n} --tensor-parallel-size {n} --max-num-seqs {n}",
    "To serve at least one request with the models's max seq len ({n}), ({s} KV cache is needed, "
    "which is larger than the available KV cache memory ({s}).",
    "No available memory for the cache blocks. Try",
    "Error in memory profiling. Initial free memory {s}, current free memory {n}.",
    "total_gpu_memory ({s}) gpu_memory_utilization ({n}) = {s}",
    "model weights take {s}; non_torch_memory takes {s}; Available KV cache memory: {s}",
    "The node was low on resource: memory. Threshold quantity: {n}Mi, available: {n}Ki. Container "
    "a was using {n}Gi, request is {n}, has larger consumption of memory.",
    "Memory on the node (IP: {n}, ID: a) was {s} / {n}GB (1), which exceeds the memory usage "
    "threshold of {n}.",
    "Failed to CUDA calloc {n} bytes",
    "Load weight begin. avail mem={s}",
    "Load weight end. avail mem={s}",
)


def explain(text: str) -> Explanation:
    return explain_log(read_log(io.BytesIO(text.encode())))


def hostile_log(seed: int) -> str:
    dice = random.Random(seed)
    lines = dice.choices(LINES, k=dice.randint(1, 7))
    for mark, values in (("{s}", SIZES), ("{n}", NUMBERS)):
        for at, line in enumerate(lines):
            while mark in line:
                line = line.replace(mark, dice.choice(values), 1)
            lines[at] = line
    return "\n".join(f"{dice.choice(('', '[rank3]: '))}{line}" for line in lines)


@pytest.mark.parametrize("start", range(0, 400, 50))
def test_impossible_amounts_are_neither_shown_nor_a_fault(start: int) -> None:
    for seed in range(start, start + 50):
        log = hostile_log(seed)
        found = explain(log)
        json.dumps(found.to_json(), allow_nan=False)
        frees = [each.frees_bytes for each in found.help if each.frees_bytes is not None]
        shares = [share.bytes for share in found.shares]
        assert min([*found.sizes_bytes.values(), *frees, *shares], default=0) >= 0, log
        assert all(line.isprintable() for line in explanation_lines(found)), log


def test_what_is_beyond_the_card_frees_no_less_than_nothing() -> None:
    found = explain(
        "CUDA out of memory. Tried to allocate 4.00 GiB (GPU 0; 80.00 GiB total capacity; 900.00 "
        "GiB already allocated; 1.00 GiB reserved in total by PyTorch)"
    )
    assert found.diagnosis == "oversubscribed"
    assert found.help[0].frees_bytes == (900 + 4 - 80) << 30


def test_a_tpu_whose_request_cannot_be_read_says_what_was_free() -> None:
    found = explain(
        "RESOURCE_EXHAUSTED: Attempting to allocate ??G. That was not possible. There are 1.25G "
        "free.; (0x0x0_HBM0)"
    )
    assert found.diagnosis == "unknown"
    assert "1.25 GiB was free on the device" in found.why
    assert "does not say how much was requested" in found.why


def test_a_budget_of_nothing_tells_no_size_of_the_card() -> None:
    found = explain(
        "vllm total_gpu_memory (0.00 GiB) x gpu_memory_utilization (0.90) = 0.00 GiB\n"
        "To serve at least one request with the models's max seq len (40960), (10.00 GiB KV cache "
        "is needed, which is larger than the available KV cache memory (8.00 GiB)."
    )
    (share,) = [each for each in found.help if "--gpu-memory-util" in each.setting]
    assert share.setting.endswith("above 0.90")


def test_what_is_left_of_a_share_may_be_less_than_nothing() -> None:
    found = explain(
        "vllm To serve at least one request with the models's max seq len (40960), (10.00 GiB KV "
        "cache is needed, which is larger than the available KV cache memory (-2.00 GiB)."
    )
    assert "12.00 GiB too little" in found.why
