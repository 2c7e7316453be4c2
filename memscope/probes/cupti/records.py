"""CUPTI's record MEMORY2: one allocation or release, by any library."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import lru_cache

MEMORY2 = 49
RELEASE = 2
DEVICE, ARRAY, STATIC, MANAGED_STATIC = 3, 4, 6, 7
CODE = (STATIC, MANAGED_STATIC)  # arrays that came with a module of code, and lie in it
LOCAL_POOL = 1
NO_STREAM = 0xFFFFFFFF
TORCH = "libc10_cuda"  # the library with torch's caching allocator
BINDINGS = "cuda.bindings"  # NVIDIA's calls for Python


class MemoryRecord(ctypes.Structure):
    """CUpti_ActivityMemory4 of cupti_activity.h; Memory3, before CUDA 12.8, lacks ``source``."""

    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("operation", ctypes.c_uint32),
        ("memory_kind", ctypes.c_uint32),
        ("correlation", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("timestamp", ctypes.c_uint64),
        ("pc", ctypes.c_uint64),
        ("process", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("context", ctypes.c_uint32),
        ("stream", ctypes.c_uint32),
        ("name", ctypes.c_void_p),
        ("is_async", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("pool_type", ctypes.c_uint32),
        ("pool_pad", ctypes.c_uint32),
        ("pool", ctypes.c_uint64),
        ("pool_threshold", ctypes.c_uint64),
        ("pool_bytes", ctypes.c_uint64),
        ("pool_used_bytes", ctypes.c_uint64),
        ("source", ctypes.c_char_p),
    ]


@dataclass(frozen=True, slots=True)
class Pool:
    """The stream-ordered pool of a call, at that moment."""

    address: int
    bytes: int
    keeps_all: bool


@dataclass(frozen=True, slots=True)
class Allocation:
    """One call. ``library`` None: CUPTI does not say. ``t_ns``: by CUPTI's clock."""

    t_ns: int
    device: int
    address: int
    bytes: int
    library: str | None
    stream: int = -1
    pool: Pool | None = None
    is_release: bool = False
    is_on_device: bool = True

    @property
    def is_torch(self) -> bool:
        """Whether torch's caching allocator made the call. Its own counters then include it."""
        return self.library is not None and self.library.startswith(TORCH)


def read_record(record: MemoryRecord, *, has_source: bool) -> Allocation:
    """Copy what ``record`` says. Its memory and strings are freed afterwards."""
    source = record.source if has_source else None
    kind = record.memory_kind
    is_pooled = record.is_async and record.pool_type == LOCAL_POOL
    pool = Pool(record.pool, record.pool_bytes, bool(record.pool_threshold)) if is_pooled else None
    return Allocation(
        t_ns=record.timestamp,
        device=record.device,
        address=record.address,
        bytes=record.bytes,
        library=library_name(os.fsdecode(source)) if source else None,
        stream=-1 if record.stream == NO_STREAM else record.stream,
        pool=pool,
        is_release=record.operation == RELEASE,
        is_on_device=kind in (DEVICE, ARRAY),
    )


@lru_cache(1 << 10)  # each call of a library has its path anew
def library_name(path: str) -> str:
    """The name by which people know a shared object: its file, or its Python package."""
    name = os.path.basename(path)
    if name.startswith(("libffi", "_ctypes")):
        return "ctypes"
    if ".cpython-" not in name and ".abi3." not in name:
        return name
    for site in ("/site-packages/", "/dist-packages/"):
        _, found, inner = path.rpartition(site)
        if found:
            parts = inner.split("/")[:-1] or [name.partition(".")[0]]
            return ".".join(parts[:2])
    return name
