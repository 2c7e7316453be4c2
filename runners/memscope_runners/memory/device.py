"""A device that holds bytes, and the one that every machine has: its own memory, bounded."""

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
    """An allocation that the device or its limit has no room for; every metric in bytes.

    `requested` is None where a library asked, and does not say for how much. `reserved`: what this
    process took of the device, `allocated` among it; `free`: what the device said that it has left.
    Where they are not given, nothing but `allocated` was taken.
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
        """What the `oom` row carries as its data."""
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
    """A piece of device memory. `weights` are typed views of it, which live as long as it does.

    `call` made it, and decides how it is freed. `last_use` is what a copy into it must wait for.
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
    """A moment in the order of a device's copies."""

    def wait(self) -> None:
        """Holds the program until every copy started before the mark is there."""


class Device(Protocol):
    """Memory handed out by driver calls within a limit, filled by copies from the host.

    A copy is started and waited for; its duration is read from the transfer afterwards, so that
    a device with streams and events can answer late. Such a device must also hear when compute is
    done with a buffer: `mark_boundary` before the next layer's work is launched, `retire` for each
    buffer that the layers before no longer need.
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
        """Gives back what this process holds idle outside our allocators; whether that was any."""

    def end_step(self, step: int, recorder: Recorder | None) -> None:
        """Reads and samples what else this process holds; DeviceOutOfMemory past the limit."""

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
        """Bytes still mapped: what is handed out, and what a view keeps alive after its free."""
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
        """Gives the bytes back; ValueError where that was done before."""
        self.tensor(buffer)
        buffer.memory = buffer.weights = None
        self.free_count += 1
        self.allocated_bytes -= buffer.bytes

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        """The bytes as uint8 (bytes,); ValueError where the buffer is freed."""
        if buffer.memory is None:
            raise ValueError(f"the buffer of {buffer.bytes} bytes of {buffer.owner} is freed")
        return buffer.memory

    def fill(self, buffer: Buffer, byte: int) -> None:
        """Overwrites every byte."""
        ctypes.memset(self.tensor(buffer).data_ptr(), byte, buffer.bytes)

    def upload(self, buffer: Buffer, source: torch.Tensor) -> None:
        """Copies contiguous uint8 (bytes,) into the buffer; ValueError for any other source."""
        memory = self.tensor(buffer)
        check_copy(buffer, source)
        copy_bytes(memory, source)  # on one thread, beside the one that computes
        with self._copied_lock:
            self.copied_bytes += buffer.bytes

    def start_upload(self, copies: Sequence[Copy], *, ahead: bool) -> Transfer:
        """Copies one after the other: at once, or `ahead` in the worker thread."""
        copy_all = partial(self._copy_all, copies)
        if not ahead:
            return FinishedTransfer(copy_all)
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="memscope-upload")
        return WorkerTransfer(self._worker, copy_all)

    def mark_boundary(self) -> None:
        """Compute is done when it returns."""

    def retire(self, buffer: Buffer) -> None:
        """Compute is done when it returns."""

    def mark_copies(self) -> CopyMark:
        """Behind what the worker has been given."""
        worker = self._worker
        return WorkerMark(None if worker is None else worker.submit(_do_nothing))

    def reclaim(self) -> bool:
        """Nothing is held but what is handed out."""
        return False

    def end_step(self, step: int, recorder: Recorder | None) -> None:
        """Nothing is held but what is handed out."""

    def close(self) -> None:
        """Lets the worker thread finish and end."""
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
    """ValueError where `source` is not contiguous uint8 (bytes,) of the buffer's size."""
    if source.numel() != buffer.bytes or source.dtype != torch.uint8:
        raise ValueError(f"{source.numel()} × {source.dtype} into {buffer.bytes} bytes")
    if not source.is_contiguous():
        raise ValueError("a source that is not contiguous")


def _do_nothing() -> None:
    """A place in the worker's queue."""
