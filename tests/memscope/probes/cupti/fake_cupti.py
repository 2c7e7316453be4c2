"""Drives the made-up CUPTI of fake_cupti.c, compiled for each test."""

from __future__ import annotations

import ctypes
import subprocess
import time
from pathlib import Path

import pytest

from memscope.errors import MemscopeError
from memscope.native import find_compiler
from memscope.probes.cupti.buffers import load_buffers
from memscope.probes.cupti.library import CuptiLibrary
from memscope.probes.cupti.records import MemoryRecord

SOURCE = Path(__file__).with_name("fake_cupti.c")
TORCH_LIBRARY = "/x/torch/lib/libc10_cuda.so"
CUBLAS = "/x/nvidia/cublas/lib/libcublas.so.13"
HELD_BY_ANOTHER, NO_PRIVILEGE = 39, 35


def compiled(folder: Path) -> Path:
    """The made-up library; skips where nothing compiles it."""
    try:
        compiler = find_compiler()
    except MemscopeError as error:
        pytest.skip(error.problem)
    path = folder / "libcupti.so.13"
    command = [*compiler, "-shared", "-fPIC", "-pthread", "-o", str(path), str(SOURCE)]
    subprocess.run(command, check=True)
    return path


class FakeCupti:
    """Makes records as libraries and torch would."""

    def __init__(self, folder: Path) -> None:
        path = compiled(folder)
        self.native = ctypes.CDLL(str(path))
        self.holding_gil = ctypes.PyDLL(str(path))
        self.native.fake_attribute.restype = ctypes.c_uint64
        self.native.fake_preset(6)
        self.library = CuptiLibrary(str(path), load_buffers())
        self._kept: list[object] = []  # strings that records point to

    def record(
        self,
        address: int,
        size: int,
        source: str | None = CUBLAS,
        *,
        device: int = 0,
        memory_kind: int = 3,
        is_release: bool = False,
        pool: tuple[int, int, int] | None = None,
    ) -> MemoryRecord:
        """`pool`: address, bytes and release threshold, of an asynchronous call."""
        made = MemoryRecord(
            kind=49,
            operation=2 if is_release else 1,
            memory_kind=memory_kind,
            address=address,
            bytes=size,
            timestamp=time.time_ns(),
            device=device,
            stream=0xFFFFFFFF,
            source=None if source is None else source.encode(),
        )
        if pool is not None:
            made.is_async, made.pool_type = 1, 1
            made.pool, made.pool_bytes, made.pool_threshold = pool
        self._kept.append(made)
        return made

    def allocate(
        self, address: int, size: int, source: str | None = CUBLAS, **more: object
    ) -> None:
        self.native.fake_call(ctypes.byref(self.record(address, size, source, **more)))  # type: ignore[arg-type]

    def release(self, address: int, size: int, **more: object) -> None:
        record = self.record(address, size, None, is_release=True, **more)  # type: ignore[arg-type]
        self.native.fake_call(ctypes.byref(record))
