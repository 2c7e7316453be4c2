"""Slabs on the host: mapped, all pinned, or streamed through a small pinned ring."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

import torch

from memscope.events import Kind
from memscope_runners.memory.cuda_device import CudaDevice
from memscope_runners.memory.cuda_runtime import CudaFailed
from memscope_runners.memory.device import CopyMark, Device
from memscope_runners.memory.pages import copy_bytes, is_of_file, map_anonymous, release_pages
from memscope_runners.progress import Progress, unseen
from memscope_runners.q8.weights import CheckpointSource

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

PINNING_THREADS = 8
RING_WHERE_REFUSED = 3
ALREADY_PINNED = "cudaErrorHostMemoryAlreadyRegistered"
OWN_PAGES_BYTES = 1 << 20  # smaller tensors may share their pages with others


class HostSlabs(Protocol):
    """Gives a layer's slab, uint8 (bytes,), valid until its copies are done."""

    def slab(self, layer: int) -> torch.Tensor: ...

    def facts(self) -> dict[str, Any]: ...

    def close(self) -> None:
        """Release the slabs; the device must have no copies left to make."""


class PinningRefused(Exception):
    """The system or the driver refused to page-lock host memory."""


class MappedSlabs:
    """Slabs used in place, where the checkpoint has them."""

    def __init__(self, checkpoint: CheckpointSource) -> None:
        self.slab = checkpoint.slab

    def facts(self) -> dict[str, Any]:
        """The `host` fact of a recording."""
        return {"tier": "mapped"}

    def close(self) -> None:
        """Nothing to release."""


class PinnedSlabs:
    """A page-locked slab for every layer; lm_head stays where it is.

    Slabs in ordinary memory are pinned in place. Slabs in a mapped file are read into memory of
    their own, and the file's pages are released. Raises PinningRefused, with nothing left pinned.
    """

    def __init__(
        self, checkpoint: CheckpointSource, device: CudaDevice, progress: Progress = unseen
    ) -> None:
        started_ns = perf_counter_ns()
        self._device = device
        self._head = checkpoint.slab(checkpoint.config.layers)
        sources = [checkpoint.slab(layer) for layer in range(checkpoint.config.layers)]
        self._pinned: dict[int, torch.Tensor] = {}  # by where the slab lay, which layers may share
        with ThreadPoolExecutor(min(PINNING_THREADS, os.cpu_count() or 1)) as threads:
            different = {source.data_ptr(): source for source in sources}
            pinned = {at: threads.submit(self._pin, each) for at, each in different.items()}
            refused = self._collect(pinned, progress)
        if refused is not None:
            self.close()
            raise PinningRefused(str(refused)) from refused
        self._slabs = [self._pinned[source.data_ptr()] for source in sources]
        self._seconds = (perf_counter_ns() - started_ns) / 1e9

    def slab(self, layer: int) -> torch.Tensor:
        return self._slabs[layer] if layer < len(self._slabs) else self._head

    def facts(self) -> dict[str, Any]:
        """The `host` fact of a recording."""
        pinned_bytes = sum(slab.nbytes for slab in self._pinned.values())
        return {"tier": "pinned", "pinned_bytes": pinned_bytes, "seconds": self._seconds}

    def close(self) -> None:
        self._device.mark_copies().wait()
        while self._pinned:
            self._device.unpin(self._pinned.popitem()[1])

    def _pin(self, source: torch.Tensor) -> torch.Tensor:
        is_file = is_of_file(source)
        if not is_file and source.nbytes >= OWN_PAGES_BYTES:
            try:
                self._device.pin(source)
                return source
            except CudaFailed as error:
                if error.error != ALREADY_PINNED:  # a neighbour has some of its pages
                    raise
        memory = map_anonymous(source.nbytes)
        copy_bytes(memory, source)
        if is_file:
            release_pages(source)
        self._device.pin(memory)
        return memory

    def _collect(
        self, pinned: dict[int, Future[torch.Tensor]], progress: Progress
    ) -> CudaFailed | OSError | None:
        """Collect the pinned slabs. Returns the first refusal, or None."""
        refused = None
        for done, (address, future) in enumerate(pinned.items(), 1):
            try:
                self._pinned[address] = future.result()
            except (CudaFailed, OSError) as error:
                refused = refused or error
            progress("pinning slabs", done, len(pinned))
        return refused


@dataclass(slots=True, eq=False)
class Slot:
    """Host memory for one slab. `copied`: a mark after the last copy from it."""

    memory: torch.Tensor
    layer: int = -1
    loading: Future[LoadTimes] | None = None
    copied: CopyMark | None = None


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """When and how long a slab was read, and how many file pages were released in what time."""

    started_ns: int
    duration_ns: int
    released_bytes: int
    release_ns: int


class StreamedSlabs:
    """`keep` slabs on the host, page-locked if possible; the others stay in the file.

    A thread reads the next slab while the device copies this one, and releases the file's pages.
    The next slab is the one that came next last time. lm_head is copied from where it is.
    """

    def __init__(
        self,
        checkpoint: CheckpointSource,
        device: Device,
        keep: int,
        recorder: Recorder | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        self._checkpoint, self._device, self._recorder = checkpoint, device, recorder
        self._layers = checkpoint.config.layers
        self._reason = reason
        self._is_of_file = is_of_file(checkpoint.slab(0))
        self._pinned: list[torch.Tensor] = []
        size = checkpoint.layer_layout.bytes
        self._slots = deque(Slot(self._make_memory(size)) for _ in range(min(keep, self._layers)))
        self._lent: Slot | None = None
        self._following: dict[int, int] = {}
        self._last = -1
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="memscope-host")

    def slab(self, layer: int) -> torch.Tensor:
        if layer >= self._layers:
            return self._checkpoint.slab(layer)
        if self._lent is not None:  # its copies were started since
            self._lent.copied = self._device.mark_copies()
        slot = self._find(layer) or self._load(layer)
        self._finish(slot)
        self._lent = slot
        self._slots.remove(slot)
        self._slots.append(slot)
        self._following[self._last], self._last = layer, layer
        following = self._following.get(layer, (layer + 1) % self._layers)
        if len(self._slots) > 1 and self._find(following) is None:
            self._load(following)
        return slot.memory

    def facts(self) -> dict[str, Any]:
        """The `host` fact of a recording."""
        return {
            "tier": "streamed",
            "slabs": len(self._slots),
            "pinned_bytes": sum(memory.nbytes for memory in self._pinned),
            "is_file": self._is_of_file,
            "reason": self._reason,
        }

    def close(self) -> None:
        for slot in self._slots:
            self._finish(slot)
        self._thread.shutdown()
        self._device.mark_copies().wait()
        for memory in self._pinned:
            self._unpin(memory)
        self._pinned.clear()
        self._slots.clear()

    def _make_memory(self, size: int) -> torch.Tensor:
        memory = map_anonymous(size)
        if isinstance(self._device, CudaDevice):
            try:
                self._device.pin(memory)
                self._pinned.append(memory)
            except CudaFailed as error:
                self._reason = self._reason or str(error)
        return memory

    def _unpin(self, memory: torch.Tensor) -> None:
        assert isinstance(self._device, CudaDevice)
        self._device.unpin(memory)

    def _find(self, layer: int) -> Slot | None:
        return next((slot for slot in self._slots if slot.layer == layer), None)

    def _load(self, layer: int) -> Slot:
        """Start to read a layer into the least recently used slot."""
        slot = self._slots.popleft()
        self._finish(slot)
        self._finish_copies(slot)
        slot.layer = layer
        slot.loading = self._thread.submit(self._read, slot.memory, self._checkpoint.slab(layer))
        self._slots.append(slot)
        return slot

    def _finish_copies(self, slot: Slot) -> None:
        if slot.copied is not None:
            slot.copied.wait()
            slot.copied = None

    def _read(self, memory: torch.Tensor, source: torch.Tensor) -> LoadTimes:
        started_ns = perf_counter_ns()
        copy_bytes(memory, source)
        read_ns = perf_counter_ns()
        released_bytes = release_pages(source) if self._is_of_file else 0
        return LoadTimes(
            started_ns, read_ns - started_ns, released_bytes, perf_counter_ns() - read_ns
        )

    def _finish(self, slot: Slot) -> None:
        if slot.loading is None:
            return
        times, slot.loading = slot.loading.result(), None
        if self._recorder is not None:
            for row in _rows(slot, times):
                self._recorder.emit(**row)


def _rows(slot: Slot, times: LoadTimes) -> Iterator[dict[str, Any]]:
    yield {
        "kind": Kind.HOST_LOAD,
        "layer": slot.layer,
        "bytes": slot.memory.nbytes,
        "duration_ns": times.duration_ns,
        "at_ns": times.started_ns,
    }
    if times.released_bytes:
        yield {
            "kind": Kind.HOST_RELEASE,
            "layer": slot.layer,
            "bytes": times.released_bytes,
            "duration_ns": times.release_ns,
            "at_ns": times.started_ns + times.duration_ns,
        }


def open_host_slabs(
    checkpoint: CheckpointSource,
    device: Device,
    *,
    keep: int | None = None,
    is_streaming: bool = True,
    recorder: Recorder | None = None,
    progress: Progress = unseen,
) -> HostSlabs:
    """Open `keep` slabs on the host, or all; pinned if a GPU streams from them.

    If pinning is refused, a line on stderr says so, and a small ring is used instead.
    """
    if keep is not None:
        return StreamedSlabs(checkpoint, device, keep, recorder)
    if not isinstance(device, CudaDevice) or not is_streaming:
        return MappedSlabs(checkpoint)
    try:
        return PinnedSlabs(checkpoint, device, progress)
    except PinningRefused as refused:
        line = f"memscope: host memory cannot be pinned ({refused}): {RING_WHERE_REFUSED} slabs"
        print(f"{line} at a time go through a ring instead.", file=sys.stderr)
        reason = str(refused)
        return StreamedSlabs(checkpoint, device, RING_WHERE_REFUSED, recorder, reason=reason)
