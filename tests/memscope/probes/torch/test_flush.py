"""Calls of empty_cache: seen, timed, sized, and given back."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from memscope.events import Kind
from memscope.probes.torch.allocator_flush import FlushProbe, find_caller
from tests.fakes import FakeTorch, ListRecorder


class FlushingTorch(FakeTorch):
    """Each flush gives 60 of 100 reserved bytes back."""

    __file__ = "/lib/torch/__init__.py"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.flushes = 0
        self._C._cuda_emptyCache = self.flush
        self.own = self._C._cuda_emptyCache

    def flush(self) -> str:
        self.flushes += 1
        return "torch's own result"

    def counters(self, device: int) -> dict[str, Any]:
        found = super().counters(device)
        found["reserved_bytes"]["all"]["current"] = 100 - 60 * min(self.flushes, 1)
        return found


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FlushingTorch:
    fake = FlushingTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_a_flush_tells_who_called_how_long_and_what_went_back(torch):
    probe, recorder = FlushProbe(), ListRecorder()
    probe(recorder)
    assert torch._C._cuda_emptyCache() == "torch's own result"
    (row,) = recorder.of(Kind.ALLOCATOR_FLUSH)
    assert (row.name, row.bytes) == ("empty_cache", 60)
    assert row.duration_ns >= 0
    assert "test_flush.py" in row.data["caller"]
    assert "in test_a_flush_tells" in row.data["caller"]


def test_closing_gives_torch_its_own_function_back(torch):
    probe, recorder = FlushProbe(), ListRecorder()
    probe(recorder)
    probe(recorder)
    assert torch._C._cuda_emptyCache is not torch.own
    probe.close()
    assert torch._C._cuda_emptyCache == torch.own


def test_a_flush_without_cuda_is_none(monkeypatch):
    torch = FlushingTorch(is_initialized=False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    probe, recorder = FlushProbe(), ListRecorder()
    probe(recorder)
    torch._C._cuda_emptyCache()
    assert torch.flushes == 1
    assert not recorder.count(Kind.ALLOCATOR_FLUSH)


def test_a_flush_whose_counters_fail_is_still_made(torch):
    torch._C._cuda_memoryStats = SimpleNamespace()  # cannot be called
    probe, recorder = FlushProbe(), ListRecorder()
    probe(recorder)
    torch._C._cuda_emptyCache()
    assert torch.flushes == 1


def test_the_flush_before_a_graph_capture_is_told_apart():
    code = compile(
        "def enter(look): return look(__import__('sys')._getframe())", "/t/graphs.py", "exec"
    )
    names: dict[str, Any] = {}
    exec(code, names)
    caller, is_capture = names["enter"](lambda frame: find_caller(frame, "/t/"))
    assert is_capture
    assert "test_flush.py" in caller
