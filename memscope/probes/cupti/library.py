"""CUPTI's records of memory calls, from the library that torch itself has loaded.

The interface is that of CUPTI 11.6 and newer. Records of later versions are longer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memscope.probes.cupti.buffers import Buffers, CuptiAbsent, load_buffers
from memscope.probes.cupti.records import CODE, MEMORY2, Allocation, MemoryRecord, read_record

MAPS = Path("/proc/self/maps")
RESOURCE_DOMAIN, MODULE_LOADED = 3, 6
PREALLOCATED_BUFFERS = 6  # attribute: buffers in device memory, which tracing kernels needs
MULTIPLE_SUBSCRIBERS = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
# Part of an error's name → what it means, what mends it.
_ERRORS = (
    (
        "PRIVILEGES",
        "this user may not trace the GPU",
        "Load the driver with NVreg_RestrictProfilingToAdminUsers=0, or use CAP_SYS_ADMIN.",
    ),
    ("DEVICE_NOT_SUPPORTED", "CUPTI does not trace this kind of device", ""),
    ("CONFIDENTIAL_COMPUTING", "CUPTI does not trace a GPU in confidential computing", ""),
)


class CuptiError(Exception):
    """A CUPTI call that failed. ``error``: CUPTI's name of the reason."""

    def __init__(self, call: str, error: str) -> None:
        super().__init__(f"{call}: {error}")
        self.error = error


class CuptiLibrary:
    """Records memory calls while it is on. It calls no function of the CUDA runtime."""

    def __init__(self, path: str, buffers: Buffers) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)
        self._buffers = buffers
        self._subscriber = ctypes.c_void_p()
        self.names_libraries = hasattr(self._library, "cuptiActivityEnableAllocationSource")
        self._before = buffers.counts()  # of recordings before this one
        self.is_preallocating = True
        self.marks_modules = False
        self.code_arrays = 0  # came with modules of code, and tell that some were loaded

    @property
    def version(self) -> int:
        """CUPTI's own number: 130000 for CUDA 13.0, 26 for CUDA 12.8."""
        return read_version(self._library)

    def start(self) -> None:
        """Begin to record. Raises CuptiAbsent if another tool uses CUPTI, or if it refuses."""
        try:
            self._subscribe()
        except CuptiError as error:
            raise _absent(error) from None
        try:
            self.is_preallocating = not self._forgo_device_buffers()
            self.resume()
        except CuptiError as error:
            self._unsubscribe()
            raise _absent(error) from None

    def pause(self) -> None:
        """Release CUPTI for another tool. Records up to now can still be drained.

        If a call fails, the others are still made; then CuptiError is raised.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(self._unsubscribe)
            stack.callback(self._call, "cuptiActivityDisable", MEMORY2)
            self._call("cuptiActivityFlushAll", 0)

    def resume(self) -> None:
        """Record again after another tool has used CUPTI. Raises CuptiError.

        Kineto, the layer below torch.profiler, stays the subscriber, so loaded modules are no
        longer marked.
        """
        if not self._subscriber:
            with contextlib.suppress(CuptiError):
                self._subscribe()
        self._call(
            "cuptiActivityRegisterCallbacks",
            self._buffers.callback("request"),
            self._buffers.callback("complete"),
        )
        if self.names_libraries:
            self._call("cuptiActivityEnableAllocationSource", ctypes.c_uint8(1))
        self._call("cuptiActivityEnable", MEMORY2)

    def drain(self) -> list[Allocation]:
        """Allocations and releases since the last call, in order."""
        self._call("cuptiActivityFlushAll", 0)
        found = [
            each
            for address, valid_bytes in self._buffers.take()
            for each in self._records(address, valid_bytes)
        ]
        return sorted(found, key=lambda each: each.t_ns)

    def now_ns(self) -> int:
        """CUPTI's clock, which dates the records."""
        now = ctypes.c_uint64()
        self._call("cuptiGetTimestamp", ctypes.byref(now))
        return now.value

    @property
    def module_loads(self) -> int:
        """Number of code modules that were loaded while it was on."""
        return self._buffers.counts().module_loads - self._before.module_loads

    def cost(self) -> dict[str, int]:
        """Number of calls of our callbacks, their time, and what they refused."""
        counts, before = self._buffers.counts(), self._before
        return {
            "callbacks": counts.calls - before.calls,
            "callback_ns": counts.nanoseconds - before.nanoseconds,
            "refused_buffers": counts.refused - before.refused,
        }

    def _records(self, address: int, valid_bytes: int) -> Iterator[Allocation]:
        record, place = ctypes.c_void_p(), ctypes.c_void_p(address)
        while not self._library.cuptiActivityGetNextRecord(
            place, ctypes.c_size_t(valid_bytes), ctypes.byref(record)
        ):
            if ctypes.c_uint32.from_address(record.value or address).value != MEMORY2:
                continue
            found = MemoryRecord.from_address(record.value or address)
            if found.memory_kind in CODE:  # by the thousand, while a program starts
                self.code_arrays += 1
            else:
                yield read_record(found, has_source=self.names_libraries)

    def _subscribe(self) -> None:
        """Become the one subscriber. Fails if another tool is; reports loaded code."""
        self._call(
            "cuptiSubscribe",
            ctypes.byref(self._subscriber),
            self._buffers.callback("module_loaded"),
            None,
        )
        code = self._library.cuptiEnableCallback(
            ctypes.c_uint32(1), self._subscriber, RESOURCE_DOMAIN, MODULE_LOADED
        )
        self.marks_modules = code == 0

    def _unsubscribe(self) -> None:
        if self._subscriber:
            self._library.cuptiUnsubscribe(self._subscriber)
            self._subscriber = ctypes.c_void_p()
        self.marks_modules = False

    def _forgo_device_buffers(self) -> bool:
        """Turn off buffers for kernel times in each context. Returns whether CUPTI agreed."""
        value, size = ctypes.c_size_t(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_size_t))
        code = self._library.cuptiActivitySetAttribute(
            PREALLOCATED_BUFFERS, ctypes.byref(size), ctypes.byref(value)
        )
        return bool(code == 0)

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self._library, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self._library.cuptiGetResultString(code, ctypes.byref(text))
            raise CuptiError(name, (text.value or str(code).encode()).decode(errors="replace"))


def open_library() -> CuptiLibrary:
    """CUPTI as torch has loaded it. Raises CuptiAbsent if there is none to use."""
    path = find_loaded()
    if path is None:
        raise CuptiAbsent(
            "torch has loaded no CUPTI",
            "Install a torch built with CUDA, as pip has it: it brings CUPTI along.",
        )
    return CuptiLibrary(path, load_buffers())


def find_loaded(maps: Path = MAPS) -> str | None:
    """Path of the CUPTI library in this process; None if there is none."""
    try:
        text = maps.read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"^(?:\S+ +){5}(/.*/libcupti\.so[.\d]*)$", text, re.MULTILINE)
    return found[1] if found else None


def read_version(library: Any) -> int:
    """The version of a loaded CUPTI."""
    version = ctypes.c_uint32()
    library.cuptiGetVersion(ctypes.byref(version))
    return version.value


def find_holder() -> tuple[str, str]:
    """The tool that seems to use CUPTI, and how to free it."""
    injected = os.environ.get("CUDA_INJECTION64_PATH", "")
    if "NSYS_PROFILING_SESSION_ID" in os.environ or "nsight-systems" in injected.lower():
        return "Nsight Systems", "Record without nsys."
    if injected:
        return f"{os.path.basename(injected)} (CUDA_INJECTION64_PATH)", "Unset that variable."
    tracer = _tracer()
    if tracer:
        return f"a debugger (process {tracer})", "Record without it."
    fix = "Begin to record before torch.profiler first runs, or set TEARDOWN_CUPTI=1."
    return "torch.profiler, once it has run, or another tool", fix


def _tracer() -> int:
    try:
        status = Path("/proc/self/status").read_text(errors="replace")
    except OSError:
        return 0
    found = re.search(r"^TracerPid:\s*(\d+)", status, re.MULTILINE)
    return int(found[1]) if found else 0


def _absent(error: CuptiError) -> CuptiAbsent:
    if error.error == MULTIPLE_SUBSCRIBERS:
        holder, fix = find_holder()
        return CuptiAbsent(f"another tool holds CUPTI: {holder}", fix)
    for part, reason, fix in _ERRORS:
        if part in error.error:
            return CuptiAbsent(f"{reason} ({error.error})", fix)
    return CuptiAbsent(str(error))
