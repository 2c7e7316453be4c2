"""The device interface, and HostDevice: the machine's own memory with a limit."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

import torch

from memscope.units import format_bytes
from memscope_runners.memory.pages import copy_bytes, new_mapping, view_mapping
from memscope_runners.memory.transfer import (
    FinishedTransfer,
    Transfer,
    WorkerMark,
    WorkerTransfer,
)

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder


class DeviceOutOfMemory(Exception):
    """The device or its limit has no room for an allocation. All numbers are bytes.

    `requested` is None if a library asked without saying how much. `reserved`: what this
    process took from the device, `allocated` included; `free`: what the device reported as free.
    If they are not given, only `allocated` was taken.
    """

    def __init__(
        self,
        requested: int | None,
        *,
        allocated: int,
        limit: int,
        total: int,
        reserved: int | None = None,
        free: int | None = None,
    ) -> None:
        self.requested = requested
        self.allocated = allocated
        self.reserved = allocated if reserved is None else reserved
        self.limit = limit
        self.total = total
        self.free = max(limit - self.reserved, 0) if free is None else free
        asked = "a size that is not said" if requested is None else format_bytes(requested)
        super().__init__(
            f"{asked} requested, {format_bytes(self.free)} free: "
            f"{format_bytes(self.reserved)} of {format_bytes(limit)} are handed out"
        )

    def metrics(self) -> dict[str, Any]:
        """The data of the `oom` event."""
        return {
            "scope": "engine",
            "free": self.free,
            "allocated": self.allocated,
            "reserved": self.reserved,
            "total": self.total,
            "limit": self.limit,
        }


@dataclass(slots=True, eq=False)
class Buffer:
    """A piece of device memory. `weights`: typed views of it, valid as long as it is.

    `call` allocated it and decides how it is freed. A copy into it must wait for `last_use`.
    """

    bytes: int
    owner: str
    address: int
    memory: torch.Tensor | None  # uint8 (bytes,); None once freed
    weights: Any = None
    call: str = "malloc"
    last_use: Any = None


Copy = tuple[Buffer, torch.Tensor]  # uint8 (bytes,) of the same size


class CopyMark(Protocol):
    """A point in the order of a device's copies."""

    def wait(self) -> None:
        """Block until every copy started before the mark is done."""


class Device(Protocol):
    """Memory handed out by driver calls within a limit, filled by copies from the host.

    A copy is started, then waited for. Its duration is read from the transfer afterwards, so
    a device with streams and events can answer late. Such a device must also be told when
    compute is done with a buffer: `mark_boundary` before the next layer's work is launched,
    `retire` for each buffer that earlier layers no longer need.
    """

    name: str
    kind: str
    torch_device: torch.device
    total_bytes: int
    limit_bytes: int
    malloc_count: int
    free_count: int

    @property
    def allocated_bytes(self) -> int: ...

    @property
    def peak_bytes(self) -> int: ...

    @property
    def copied_bytes(self) -> int: ...

    def malloc(self, bytes: int, owner: str) -> Buffer: ...

    def free(self, buffer: Buffer) -> None: ...

    def tensor(self, buffer: Buffer) -> torch.Tensor: ...

    def fill(self, buffer: Buffer, byte: int) -> None: ...

    def upload(self, buffer: Buffer, source: torch.Tensor) -> None: ...

    def start_upload(self, copies: Sequence[Copy], *, ahead: bool) -> Transfer: ...

    def mark_boundary(self) -> None: ...

    def retire(self, buffer: Buffer) -> None: ...

    def mark_copies(self) -> CopyMark: ...

    def reclaim(self) -> bool:
        """Release memory that lies idle outside our allocators. Returns whether there was any."""

    def end_step(self, step: int, recorder: Recorder | None) -> None:
        """Sample what else this process holds. Raises DeviceOutOfMemory past the limit."""

    def close(self) -> None: ...


class HostDevice:
    """The machine's own memory behind an enforced limit: each buffer is an anonymous mapping.

    `allocated_bytes` falls as a buffer is freed, as it would on a card. Its mapping goes when the
    last view goes, so a view that outlives its buffer stays readable; `mapped_bytes` counts it.
    """

    kind = "host"
    torch_device = torch.device("cpu")

    def __init__(self, *, limit_bytes: int | None = None) -> None:
        self.name = f"host ({platform.machine()}, {os.cpu_count()} cores)"
        self.total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.limit_bytes = self.total_bytes if limit_bytes is None else limit_bytes
        self.malloc_count = 0
        self.free_count = 0
        self.allocated_bytes = 0
        self.peak_bytes = 0
        self.copied_bytes = 0
        self._mappings: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
        self._copied_lock = threading.Lock()
        self._worker: ThreadPoolExecutor | None = None

    @property
    def mapped_bytes(self) -> int:
        """Bytes still mapped: allocated buffers, and freed ones that a view keeps alive."""
        return sum(len(mapping) for mapping in self._mappings)

    def malloc(self, bytes: int, owner: str) -> Buffer:
        """A buffer of `bytes` zeros. Raises DeviceOutOfMemory past the limit."""
        if bytes <= 0:
            raise ValueError(f"a buffer of {bytes} bytes")
        if self.allocated_bytes + bytes > self.limit_bytes:
            raise self._out_of_memory(bytes)
        memory = self._map(bytes)
        self.malloc_count += 1
        self.allocated_bytes += bytes
        self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)
        return Buffer(bytes, owner, memory.data_ptr(), memory)

    def free(self, buffer: Buffer) -> None:
        """Free the buffer. Raises ValueError if it is freed already."""
        self.tensor(buffer)
        buffer.memory = buffer.weights = None
        self.free_count += 1
        self.allocated_bytes -= buffer.bytes

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        """The buffer as uint8 (bytes,). Raises ValueError if it is freed."""
        if buffer.memory is None:
            raise ValueError(f"the buffer of {buffer.bytes} bytes of {buffer.owner} is freed")
        return buffer.memory

    def fill(self, buffer: Buffer, byte: int) -> None:
        """Overwrites every byte."""
        ctypes.memset(self.tensor(buffer).data_ptr(), byte, buffer.bytes)

    def upload(self, buffer: Buffer, source: torch.Tensor) -> None:
        """Copy contiguous uint8 (bytes,) into the buffer. Raises ValueError for other sources."""
        memory = self.tensor(buffer)
        check_copy(buffer, source)
        copy_bytes(memory, source)  # on one thread, beside the one that computes
        with self._copied_lock:
            self.copied_bytes += buffer.bytes

    def start_upload(self, copies: Sequence[Copy], *, ahead: bool) -> Transfer:
        """Copy one after the other: now, or in the worker thread if `ahead`."""
        copy_all = partial(self._copy_all, copies)
        if not ahead:
            return FinishedTransfer(copy_all)
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="memscope-upload")
        return WorkerTransfer(self._worker, copy_all)

    def mark_boundary(self) -> None:
        """Nothing to do: compute is done when it returns."""

    def retire(self, buffer: Buffer) -> None:
        """Nothing to do: compute is done when it returns."""

    def mark_copies(self) -> CopyMark:
        """A mark after all copies that the worker has."""
        worker = self._worker
        return WorkerMark(None if worker is None else worker.submit(_do_nothing))

    def reclaim(self) -> bool:
        """Nothing to release: only allocated buffers are held."""
        return False

    def end_step(self, step: int, recorder: Recorder | None) -> None:
        """Nothing to sample: only allocated buffers are held."""

    def close(self) -> None:
        """Let the worker thread finish, then end it."""
        if self._worker is not None:
            self._worker.shutdown()
            self._worker = None

    def _copy_all(self, copies: Sequence[Copy]) -> list[int]:
        durations_ns = []
        for buffer, source in copies:
            started_ns = perf_counter_ns()
            self.upload(buffer, source)
            durations_ns.append(perf_counter_ns() - started_ns)
        return durations_ns

    def _map(self, bytes: int) -> torch.Tensor:
        try:
            mapping = new_mapping(bytes)
        except OSError as error:
            raise self._out_of_memory(bytes) from error
        self._mappings.add(mapping)
        return view_mapping(mapping)

    def _out_of_memory(self, requested: int) -> DeviceOutOfMemory:
        return DeviceOutOfMemory(
            requested,
            allocated=self.allocated_bytes,
            limit=self.limit_bytes,
            total=self.total_bytes,
        )


def check_copy(buffer: Buffer, source: torch.Tensor) -> None:
    """Raises ValueError unless `source` is contiguous uint8 (bytes,) of the buffer's size."""
    if source.numel() != buffer.bytes or source.dtype != torch.uint8:
        raise ValueError(f"{source.numel()} × {source.dtype} into {buffer.bytes} bytes")
    if not source.is_contiguous():
        raise ValueError("a source that is not contiguous")


def _do_nothing() -> None:
    """Does nothing: marks a place in the worker's queue."""
