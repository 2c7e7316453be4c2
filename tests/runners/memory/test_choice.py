"""Which device a run gets: one sentence and the fix where it cannot be had."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from memscope.errors import MemscopeError, OutOfMemory
from memscope.recorder.memory_errors import find_problem
from memscope_runners.memory.allocators import make_allocator
from memscope_runners.memory.choice import choose_device, make_device
from memscope_runners.memory.cuda_runtime import load_bindings
from memscope_runners.memory.device import HostDevice


def pretend(
    monkeypatch: pytest.MonkeyPatch,
    *,
    cuda: str | None = "13.0",
    gpus: int = 2,
    bindings: str | None = "13.0.1",
    triton: bool = True,
) -> None:
    """A machine with that torch, so many GPUs and those cuda-bindings."""

    def find_module(name: str) -> Any:
        if bindings is None:
            raise ImportError(name)
        return SimpleNamespace(__version__=bindings)

    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(importlib, "import_module", find_module)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object() if triton else None)


@pytest.mark.parametrize(
    ("name", "chosen"), [(None, "cuda:0"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1"), ("host",) * 2]
)
def test_device_by_name_or_the_best(monkeypatch, name, chosen):
    pretend(monkeypatch)
    assert choose_device(name).name == chosen


@pytest.mark.parametrize(
    ("machine", "problem", "fix"),
    [
        ({"cuda": None}, "without CUDA", "CUDA build of torch"),
        ({"gpus": 0}, "no GPU here", "nvidia-smi"),
        ({"bindings": None}, "needs cuda-bindings", r"pip install 'memscope-torch\[cuda13\]'"),
        ({"bindings": "12.9.0"}, "12.9.0 do not go with", r"'memscope-torch\[cuda13\]'"),
        ({"triton": False}, "Triton", "pip install triton"),
    ],
)
def test_what_is_missing_is_said_with_its_fix(monkeypatch, machine, problem, fix):
    pretend(monkeypatch, **machine)
    with pytest.raises(MemscopeError, match=f"{problem}.*{fix}.*--device host"):
        choose_device("cuda")
    best = choose_device()
    assert best.name == "host"
    assert problem in best.reason


def test_bindings_of_an_older_torch_are_of_its_major(monkeypatch):
    pretend(monkeypatch, cuda="12.8", bindings="12.9.2")
    assert load_bindings()[0].__version__ == "12.9.2"


@pytest.mark.parametrize("name", ["cuda:2", "cuda:x", "cuda:", "gpu", "cuda:-1", ""])
def test_device_that_is_not_there_is_named(monkeypatch, name):
    pretend(monkeypatch)
    with pytest.raises(MemscopeError, match=f"no device {name!r}"):
        choose_device(name)


def test_host_is_made_with_its_limit():
    assert make_device("host", 77).limit_bytes == 77


@pytest.mark.parametrize("name", ["async", "torch"])
def test_allocator_that_the_host_does_not_have(name):
    with pytest.raises(MemscopeError, match=f"Allocator {name} needs a GPU. Use one of naive"):
        make_allocator(name, HostDevice())


def test_allocator_that_nobody_has():
    with pytest.raises(MemscopeError, match="no allocator 'best'"):
        make_allocator("best", HostDevice())


def test_card_too_full_for_cuda_itself_is_out_of_memory(monkeypatch):
    pretend(monkeypatch)

    def refuse(_: object) -> None:
        raise RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'")

    monkeypatch.setattr(torch.cuda, "set_device", refuse)
    with pytest.raises(OutOfMemory, match=r"cuda:1 is so full.* lists who holds it") as caught:
        make_device("cuda:1")
    assert caught.value.exit_code == 4
    assert find_problem(caught.value) is not None  # so that a recorder knows it by its exception
