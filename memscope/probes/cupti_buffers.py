"""The native part of reading CUPTI: buffers of records, filled on the program's threads.

It is compiled once, by the C compiler that Triton needs as well, and kept in the cache folder.
Callbacks into Python could stop a program for ever; cupti_buffers.c says why.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from memscope.probes.nvml_errors import Problem

SOURCE = Path(__file__).with_name("cupti_buffers.c")
COMPILERS = ("cc", "gcc", "clang")
BUILD_SECONDS = 60


class CuptiAbsent(Exception):
    """CUPTI cannot be read here; ``problem`` says why and what mends it."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.problem = Problem(reason, fix)


class Counts(ctypes.Structure):
    """What the callbacks did: number, time, buffers in use, requests refused, modules loaded."""

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
    """Completed buffers and the callbacks that fill them."""

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
        """Address and bytes of the records in each completed buffer, which is freed afterwards."""
        buffer = self._library.memscope_take()
        while buffer:
            valid_bytes = _Head.from_address(buffer).valid_bytes
            try:
                yield self._library.memscope_records(buffer), valid_bytes
            finally:
                buffer = self._library.memscope_free(buffer)

    def counts(self) -> Counts:
        """What the callbacks did so far."""
        counts: Counts = self._library.memscope_read_counts()
        return counts


def load_buffers() -> Buffers:
    """The native part, compiled if need be. Raises CuptiAbsent where that cannot be done."""
    return Buffers(build())


def find_compiler() -> list[str]:
    """The command of a C compiler. Raises CuptiAbsent where there is none."""
    named = shlex.split(os.environ.get("CC", ""))
    if named and shutil.which(named[0]):
        return named
    found = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if found is None:
        raise CuptiAbsent(
            "no C compiler is here, for the part of memscope that CUPTI calls",
            "Install one (apt install gcc), or name it in CC.",
        )
    return [found]


def build() -> Path:
    """The compiled library in the cache folder. Raises CuptiAbsent where there can be none."""
    source = SOURCE.read_bytes()
    name = f"cupti-{platform.machine()}-{hashlib.sha256(source).hexdigest()[:16]}.so"
    folder = _cache_folder()
    if not (folder / name).exists():
        _compile(folder, name)
    return folder / name


def _compile(folder: Path, name: str) -> None:
    """By rename: another process may build it at the same moment."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch, name)
        command = [*find_compiler(), "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE)]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CuptiAbsent(f"{command[0]} does not run: {error}") from None
        if run.returncode or not made.exists():
            said = (run.stderr.strip().splitlines() or [f"code {run.returncode}"])[-1]
            raise CuptiAbsent(f"{command[0]} cannot compile: {said[:200]}", "See CC and CFLAGS.")
        os.replace(made, folder / name)


def _cache_folder() -> Path:
    named = os.environ.get("MEMSCOPE_CACHE_DIR")
    folder = Path(named) if named else Path(platformdirs.user_cache_dir("memscope"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CuptiAbsent(
            f"the cache folder {folder} cannot be made ({error.strerror})",
            "Set MEMSCOPE_CACHE_DIR to a folder that can be written.",
        ) from None
    if not os.access(folder, os.W_OK):
        raise CuptiAbsent(f"{folder} cannot be written", "Set MEMSCOPE_CACHE_DIR to another.")
    return folder
