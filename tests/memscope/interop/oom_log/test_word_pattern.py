"""Patterns behind words: the words only save time, they never hide a match."""

from __future__ import annotations

import pytest

from memscope.interop.oom_log import context as log_context
from memscope.interop.oom_log.search import WordPattern

# A line for each way in which a pattern may match.
LINES = [
    *(f"{name}={1}" for name in log_context.OPTIONS),
    *(f"--{name.replace('_', '-')} 1" for name in log_context.OPTIONS),
    *("--enforce-eager", "--disable-cuda-graph", "sglang", "mem-fraction-static", "vllm"),
    *(
        "gpu-memory_utilization",
        "EngineCore",
        "VllmWorker",
        "torch==2.1",
        "torch 2.1",
        "torch: 2.1",
    ),
    *("torch-2.1", "PyTorch version: 2.1", "PYTORCH_HIP_ALLOC_CONF=a_b_c:1", "JaxRuntimeError"),
    *("XLA_PYTHON_CLIENT_MEM_FRACTION=.9", "XlaRuntimeError", "torch_xla/x", "total_gpu_memory"),
    *("Free memory on device", "Loading took", "loading model", "weights take", "graph"),
    *("KV cache memory:", "Load weight", "Allocated memory", "Active memory", "memory: usage"),
    *("Limit: ", "InUse: ", "memory_limit_", "XLA backend", "Starting to load model"),
    *("Load weight begin", "x, in create_weights", ", in load_model", ", in load_weights"),
    *(", in initialize_model", "Model loading took", "Loading model weights took"),
    "Load weight end",
]
PATTERNS = [
    pattern
    for pattern in (
        *vars(log_context).values(),
        *(pattern for _, pattern in log_context._SERVERS),
    )
    if isinstance(pattern, WordPattern)
]


@pytest.mark.parametrize("line", LINES)
def test_words_hide_no_match(line: str) -> None:
    found = [pattern for pattern in PATTERNS if pattern._pattern.search(line)]
    assert found
    assert all(pattern.search(line) for pattern in found)


def test_pattern_without_its_words_is_not_looked_for() -> None:
    pattern = WordPattern(r"\d+ apples", "apples")
    assert pattern.search("3 apples")
    assert not pattern.search("3 pears")
    assert [match[0] for match in pattern.matches("3 apples, 4 apples")] == ["3 apples", "4 apples"]
    assert not [*pattern.matches("3 pears")]
