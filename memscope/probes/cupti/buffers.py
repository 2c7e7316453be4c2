"""Native part of the CUPTI probe: buffers of records, filled on the program's threads.

The C compiler compiles it once; the result is kept in the cache folder. Callbacks into Python could
block a program for ever: see buffers.c.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

from memscope import native
from memscope.errors import MemscopeError
from memscope.probes.nvml.errors import Problem

SOURCE = Path(__file__).with_name("buffers.c")
FLAGS = ("-O2", "-shared", "-fPIC")


class CuptiAbsent(Exception):
    """CUPTI cannot be read here. ``problem`` says why, and how to fix it."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.problem = Problem(reason, fix)


class Counts(ctypes.Structure):
    """Counters of the callbacks: calls, time, buffers in use, refused requests, loaded modules."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("calls", "nanoseconds", "buffers", "refused", "module_loads")
    ]
    calls: int
    nanoseconds: int
    buffers: int
    refused: int
    module_loads: int


class _Head(ctypes.Structure):
    _fields_ = [("next", ctypes.c_void_p), ("valid_bytes", ctypes.c_uint64)]


class Buffers:
    """The callbacks and the buffers they have filled."""

    def __init__(self, path: Path) -> None:
        self._library = library = ctypes.CDLL(str(path))
        for name in ("memscope_take", "memscope_records", "memscope_free"):
            getattr(library, name).restype = ctypes.c_void_p
        library.memscope_records.argtypes = library.memscope_free.argtypes = [ctypes.c_void_p]
        library.memscope_read_counts.restype = Counts

    def callback(self, name: str) -> ctypes.c_void_p:
        """The address of a callback: "request", "complete" or "module_loaded"."""
        return ctypes.cast(getattr(self._library, f"memscope_{name}"), ctypes.c_void_p)

    def take(self) -> Iterator[tuple[int, int]]:
        """Address and size of the records in each full buffer. Frees each buffer afterwards."""
        buffer = self._library.memscope_take()
        while buffer:
            valid_bytes = _Head.from_address(buffer).valid_bytes
            try:
                yield self._library.memscope_records(buffer), valid_bytes
            finally:
                buffer = self._library.memscope_free(buffer)

    def counts(self) -> Counts:
        """The counters up to now."""
        counts: Counts = self._library.memscope_read_counts()
        return counts


def load_buffers() -> Buffers:
    """Load the native part; compile it if needed. Raises CuptiAbsent."""
    return Buffers(build())


def build() -> Path:
    """The compiled library in the cache folder. Raises CuptiAbsent if it cannot be built."""
    try:
        return native.build(SOURCE, FLAGS)
    except MemscopeError as error:
        reason = error.problem.removesuffix(".")
        raise CuptiAbsent(f"{reason[:1].lower()}{reason[1:]}", error.next_step) from None
