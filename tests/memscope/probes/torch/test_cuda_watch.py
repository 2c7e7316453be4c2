"""Told of CUDA's initialisation while torch holds its lock, also by one that was told of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest

from memscope.probes.torch.cuda_watch import watch_cuda


class FakeCuda(ModuleType):
    """As much of torch.cuda as initialises itself; its lock is not reentrant."""

    def __init__(self) -> None:
        super().__init__("torch.cuda")
        self._queued_calls: list[tuple[Callable[[], object], object]] = []
        self._initialization_lock = threading.Lock()
        self._tls = threading.local()
        self.__spec__ = SimpleNamespace(_initializing=False)  # type: ignore[assignment]

    def _lazy_call(self, call: Callable[[], object]) -> None:
        assert self._initialization_lock.acquire(timeout=2), "waits for itself"
        self._queued_calls.append((call, []))
        self._initialization_lock.release()

    def _lazy_init(self) -> None:
        with self._initialization_lock:
            self._tls.is_initializing = True
            for call, _ in self._queued_calls:
                call()
            del self._tls.is_initializing


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch.cuda", fake)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    return fake


def import_something() -> None:
    for finder in sys.meta_path[:3]:
        finder.find_spec("something", None, None)  # type: ignore[union-attr]


def test_a_watch_begun_by_a_watch_is_told_as_well(cuda: FakeCuda) -> None:
    told: list[str] = []

    def first() -> None:
        told.append("first")
        watch_cuda(lambda: told.append("second"))
        import_something()

    watch_cuda(first)
    import_something()
    cuda._lazy_init()
    assert told == ["first", "second"]
