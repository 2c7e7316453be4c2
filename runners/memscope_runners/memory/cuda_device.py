"""A GPU: driver calls, tensors over raw pointers, and one copy stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch

from memscope_runners.memory.cuda_runtime import CudaFailed, CudaRuntime, Event, Runtime, Stream
from memscope_runners.memory.cuda_transfer import CudaMark, CudaTransfer
from memscope_runners.memory.device import Buffer, Copy, DeviceOutOfMemory, check_copy

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

READING_NS = 50_000_000  # between readings of torch's counters at step ends, without a limit


class CudaDevice:
    """One GPU. `allocated_bytes` counts driver calls; torch's own bytes are counted apart.

    The limit covers both: allocated bytes and the bytes that torch reserved. A malloc uses
    torch's part as read at the last step's end, and reads it again if that leaves no room. The
    context and kernel code are not counted.

    Copies run in order on one stream, compute on torch's current stream; neither makes the program
    wait. A copy waits for the event of the buffer's last use, compute for the event behind its
    copies.
    """

    kind = "cuda"

    def __init__(
        self,
        name: str = "cuda",
        limit_bytes: int | None = None,
        *,
        is_timing: bool = True,
        runtime: Runtime | None = None,
    ) -> None:
        """Raises MemscopeError if there is no such device. `is_timing`: time the copies."""
        self._runtime: Runtime = CudaRuntime(name) if runtime is None else runtime
        self.name = self._runtime.name
        self.torch_device = self._runtime.torch_device
        self.total_bytes = self._runtime.total_bytes
        self.limit_bytes = self.total_bytes if limit_bytes is None else limit_bytes
        self.compute_stream: Callable[[], Stream] = self._runtime.compute_stream
        self.is_capturing: Callable[[], bool] = self._runtime.is_capturing
        self.boundary: Event | None = None
        self.malloc_count = 0
        self.free_count = 0
        self.allocated_bytes = 0
        self.peak_bytes = 0
        self.copied_bytes = 0
        self._is_timing = is_timing
        self._copies = self._runtime.new_stream()
        self._reserved_bytes = self._runtime.counters()["reserved_bytes"]
        self._read_ns = 0

    @property
    def reserved_bytes(self) -> int:
        """Bytes that torch had reserved at the last reading."""
        return self._reserved_bytes

    def malloc(self, bytes: int, owner: str) -> Buffer:
        """Allocate with cudaMalloc; content undefined. Raises DeviceOutOfMemory."""
        self._check_room(bytes)
        address = self._try(bytes, lambda: self._runtime.malloc(bytes))
        return self._hand_out(address, bytes, owner, "malloc")

    def malloc_async(self, bytes: int, owner: str) -> Buffer:
        """Allocate with cudaMallocAsync on the copy stream. Raises DeviceOutOfMemory."""
        self._check_room(bytes)
        address = self._try(bytes, lambda: self._runtime.malloc_async(bytes, self._copies))
        return self._hand_out(address, bytes, owner, "malloc_async")

    def malloc_torch(self, bytes: int, owner: str) -> Buffer:
        """Allocate from torch's caching allocator, which counts it. Raises DeviceOutOfMemory."""
        try:
            memory = self._runtime.empty(bytes, self._copies)
        except torch.OutOfMemoryError:
            raise self.refused(bytes) from None
        if self._is_limited and self._taken_now() > self.limit_bytes:
            del memory
            raise self._out_of_memory(bytes)
        return Buffer(bytes, owner, memory.data_ptr(), memory, call="malloc_torch")

    def free(self, buffer: Buffer) -> None:
        """Free the buffer. Raises ValueError if it is freed already.

        cudaFree waits for all work in flight; the others go behind the buffer's last use, in the
        order of the copies.
        """
        self.tensor(buffer)
        buffer.memory = buffer.weights = None
        if buffer.call == "malloc":
            self._runtime.free(buffer.address)
        elif buffer.last_use is not None:
            self._copies.wait_event(buffer.last_use)
        if buffer.call == "malloc_async":
            self._runtime.free_async(buffer.address, self._copies)
        if buffer.call != "malloc_torch":
            self.free_count += 1
            self.allocated_bytes -= buffer.bytes

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        """The buffer as uint8 (bytes,). Raises ValueError if it is freed."""
        if buffer.memory is None:
            raise ValueError(f"the buffer of {buffer.bytes} bytes of {buffer.owner} is freed")
        return buffer.memory

    def fill(self, buffer: Buffer, byte: int) -> None:
        """Overwrite every byte, after the work that compute already has."""
        address = self.tensor(buffer).data_ptr()
        self._runtime.fill(address, byte, buffer.bytes, self.compute_stream())
        self.mark_boundary()

    def upload(self, buffer: Buffer, source: torch.Tensor) -> None:
        """Copy contiguous uint8 (bytes,) into the buffer and wait. Raises ValueError otherwise."""
        self.start_upload([(buffer, source)], ahead=False)
        self._copies.synchronize()

    def start_upload(self, copies: Sequence[Copy], *, ahead: bool) -> CudaTransfer:
        """Queue the copies after the last use of their buffers. Sources must stay alive."""
        stream, waited_for = self._copies, None
        for buffer, source in copies:
            check_copy(buffer, source)
            if buffer.last_use is not None and buffer.last_use is not waited_for:
                waited_for = buffer.last_use
                stream.wait_event(waited_for)
            buffer.last_use = None
        issued_ns = perf_counter_ns()
        marks = [self._mark(stream)] if self._is_timing else []
        for buffer, source in copies:
            self._runtime.copy(buffer.address, source.data_ptr(), buffer.bytes, stream)
            self.copied_bytes += buffer.bytes
            if self._is_timing:
                marks.append(self._mark(stream))
        return CudaTransfer(self, marks or [self._mark(stream)], issued_ns)

    def mark_boundary(self) -> None:
        """Mark this point of compute: all work before it is done when it is reached."""
        self.boundary = self._mark(self.compute_stream())

    def retire(self, buffer: Buffer) -> None:
        """Compute no longer uses the buffer once it reaches the last boundary."""
        buffer.last_use = self.boundary

    def mark_copies(self) -> CudaMark:
        """A mark after all copies that were started."""
        event = self._runtime.new_event(is_timed=False)
        event.record(self._copies)
        return CudaMark(event)

    def measure_link(self, buffer: Buffer, sources: Sequence[torch.Tensor]) -> float:
        """Bytes per second of back-to-back copies into the start of the buffer.

        Waits for them; `copied_bytes` does not count them. Sources: contiguous uint8 (≤ bytes,).
        """
        assert all(source.is_contiguous() and source.nbytes <= buffer.bytes for source in sources)
        stream, sizes = self._copies, [source.nbytes for source in sources]
        start, end = (self._runtime.new_event(is_timed=True) for _ in range(2))
        if buffer.last_use is not None:
            stream.wait_event(buffer.last_use)
        start.record(stream)
        for source in sources:
            self._runtime.copy(buffer.address, source.data_ptr(), source.nbytes, stream)
        end.record(stream)
        end.synchronize()
        return sum(sizes) / start.elapsed_time(end) * 1e3  # of ms

    def pin(self, memory: torch.Tensor) -> None:
        """Page-lock host memory in place, from any thread. Raises CudaFailed."""
        self._runtime.register(memory.data_ptr(), memory.nbytes)

    def unpin(self, memory: torch.Tensor) -> None:
        """Undo `pin`, once no copy reads the memory."""
        self._runtime.unregister(memory.data_ptr())

    def reclaim(self) -> bool:
        """Empty torch's cache. Returns whether that freed any bytes."""
        before = self._read_reserved()
        self._runtime.empty_cache()
        return self._read_reserved() < before

    def end_step(self, step: int, recorder: Recorder | None) -> None:
        """Sample torch's reserved bytes and their peak. Raises DeviceOutOfMemory past the limit.

        Without a limit at most 20 times a second: the peak register misses nothing in between.
        """
        now_ns = perf_counter_ns()
        if self._read_ns and not self._is_limited and now_ns - self._read_ns < READING_NS:
            return
        self._read_ns = now_ns
        counters = self._runtime.counters()
        self._reserved_bytes = counters["reserved_bytes"]
        if recorder is not None:
            for name in ("reserved_bytes", "peak_reserved_bytes", "allocated_bytes"):
                recorder.sample(f"torch.{name}", bytes=counters[name], step=step)
        if self._excess_bytes > 0 and self._is_limited:
            self.reclaim()
            if self._excess_bytes > 0:
                raise self._out_of_memory(self._excess_bytes)

    def refused(self, requested: int | None) -> DeviceOutOfMemory:
        """The error to raise when the driver is out of memory, with the free bytes it reports."""
        return self._out_of_memory(requested, self._runtime.free_bytes())

    def _out_of_memory(self, requested: int | None, free: int | None = None) -> DeviceOutOfMemory:
        reserved = self.allocated_bytes + self._read_reserved()
        return DeviceOutOfMemory(
            requested,
            allocated=self.allocated_bytes,
            reserved=reserved,
            limit=self.limit_bytes,
            total=self.total_bytes,
            free=free,
        )

    def close(self) -> None:
        """Wait for the copies and release what the stream-ordered pool keeps."""
        self._copies.synchronize()
        self._runtime.trim_async()

    @property
    def _is_limited(self) -> bool:
        return self.limit_bytes < self.total_bytes

    @property
    def _excess_bytes(self) -> int:
        return self.allocated_bytes + self._reserved_bytes - self.limit_bytes

    def _mark(self, stream: Stream) -> Event:
        event = self._runtime.new_event(is_timed=self._is_timing)
        event.record(stream)
        return event

    def _check_room(self, bytes: int) -> None:
        if bytes <= 0:
            raise ValueError(f"a buffer of {bytes} bytes")
        if self.allocated_bytes + self._reserved_bytes + bytes <= self.limit_bytes:
            return
        if self._is_limited and self._taken_now() + bytes > self.limit_bytes:
            raise self._out_of_memory(bytes)

    def _taken_now(self) -> int:
        return self.allocated_bytes + self._read_reserved()

    def _read_reserved(self) -> int:
        self._reserved_bytes = self._runtime.counters()["reserved_bytes"]
        return self._reserved_bytes

    def _try(self, bytes: int, call: Callable[[], int]) -> int:
        try:
            return call()
        except CudaFailed as error:
            if not error.is_out_of_memory:
                raise
            raise self.refused(bytes) from None

    def _hand_out(self, address: int, bytes: int, owner: str, call: str) -> Buffer:
        self.malloc_count += 1
        self.allocated_bytes += bytes
        self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)
        return Buffer(bytes, owner, address, self._runtime.view(address, bytes), call=call)
