"""A GPU made up: streams as queues that run as late as they may, time in ns a byte, and hazards.

Compute runs as the program goes; a copy runs when something waits for it, so that weights used
without a wait are seen to be old. A copy into memory that compute was given, without a wait for an
event behind that, fails at once.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from memscope_runners.memory.cuda_runtime import OUT_OF_MEMORY, CudaFailed


@dataclass(eq=False)
class FakeEvent:
    """`launches`: how many of compute's launches lie before it."""

    runtime: FakeRuntime
    stream: FakeStream | None = None
    is_over: bool = False
    time_ns: int = 0
    launches: int = 0

    def record(self, stream: FakeStream) -> None:
        self.stream, self.is_over = stream, False
        self.launches = self.runtime.launches if stream is self.runtime.compute else 0
        stream.add(self._happen)

    def _happen(self) -> None:
        assert self.stream is not None
        self.is_over, self.time_ns = True, self.stream.time_ns

    def query(self) -> bool:
        assert not self.runtime.is_capture_on, "a query breaks the capture"
        return self.is_over

    def synchronize(self) -> None:
        assert self.stream is not None
        self.runtime.synchronizations += 1
        self.stream.run_until(self)

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.is_over
        assert end.is_over
        return (end.time_ns - self.time_ns) / 1e6


@dataclass(eq=False)
class FakeStream:
    """`is_eager`: compute, whose work is done as it is given."""

    is_eager: bool = False
    time_ns: int = 0
    seen_launches: int = 0
    waiting: deque[Callable[[], None]] = field(default_factory=deque)

    def add(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)
        if self.is_eager:
            self.synchronize()

    def wait_event(self, event: FakeEvent) -> None:
        self.seen_launches = max(self.seen_launches, event.launches)
        self.add(lambda: self._wait(event))

    def _wait(self, event: FakeEvent) -> None:
        if event.stream is not None and event.stream is not self:
            event.stream.run_until(event)
        self.time_ns = max(self.time_ns, event.time_ns)

    def run_until(self, event: FakeEvent) -> None:
        while not event.is_over:
            self.waiting.popleft()()

    def synchronize(self) -> None:
        while self.waiting:
            self.waiting.popleft()()


class FakeRuntime:
    """A Runtime. `room_bytes`: what the driver has; `counters` are torch's, to be set."""

    name = "Fake GPU (cuda:0)"
    torch_device = torch.device("cpu")

    def __init__(self, total_bytes: int = 1 << 30) -> None:
        self.total_bytes = self.room_bytes = total_bytes
        self.compute = FakeStream(is_eager=True)
        self.launches = self.synchronizations = 0
        self.is_capture_on = False
        self.memory: dict[int, torch.Tensor] = {}
        self.pinned: set[int] = set()
        self.pins_left = 1000
        self.already_pinned: set[int] = set()
        self.reserved_bytes = self.idle_torch_bytes = 0
        self.calls: list[str] = []
        self._used: dict[int, int] = {}  # address → the launch that used it

    def launch(self, address: int, duration_ns: int = 0) -> None:
        """Compute reads what lies at `address`."""
        self.launches += 1
        self._used[address] = self.launches
        self.compute.time_ns += duration_ns

    def malloc(self, bytes: int) -> int:
        self.calls.append("malloc")
        return self._take(bytes)

    def free(self, address: int) -> None:
        self.calls.append("free")
        self._forget(address)

    def malloc_async(self, bytes: int, stream: FakeStream) -> int:
        self.calls.append("malloc_async")
        return self._take(bytes)

    def free_async(self, address: int, stream: FakeStream) -> None:
        self.calls.append("free_async")
        self._check_hazard(address, self.memory[address].nbytes, stream)
        stream.synchronize()
        self._forget(address)

    def trim_async(self) -> None:
        self.calls.append("trim_async")

    def empty(self, bytes: int, stream: FakeStream) -> torch.Tensor:
        self.calls.append("empty")
        if bytes > self.room_bytes:
            raise torch.OutOfMemoryError("Tried to allocate 20.00 MiB. GPU 0 is full")
        return torch.full((bytes,), 0x55, dtype=torch.uint8)

    def view(self, address: int, bytes: int) -> torch.Tensor:
        return self.memory[address]

    def copy(self, target: int, source: int, bytes: int, stream: FakeStream) -> None:
        self._check_hazard(target, bytes, stream)

        def run() -> None:
            ctypes.memmove(target, source, bytes)
            stream.time_ns += bytes

        stream.add(run)

    def fill(self, address: int, byte: int, bytes: int, stream: FakeStream) -> None:
        assert stream is self.compute
        ctypes.memset(address, byte, bytes)
        self.launch(address)

    def register(self, address: int, bytes: int) -> None:
        self.pins_left -= 1
        if self.pins_left < 0:
            raise CudaFailed("cudaHostRegister", OUT_OF_MEMORY)
        if address in self.already_pinned:
            raise CudaFailed("cudaHostRegister", "cudaErrorHostMemoryAlreadyRegistered")
        self.pinned.add(address)

    def unregister(self, address: int) -> None:
        self.pinned.remove(address)

    def free_bytes(self) -> int:
        return self.room_bytes

    def counters(self) -> dict[str, int]:
        names = ("reserved_bytes", "peak_reserved_bytes", "allocated_bytes")
        return dict.fromkeys(names, self.reserved_bytes)

    def empty_cache(self) -> None:
        self.calls.append("empty_cache")
        self.reserved_bytes -= self.idle_torch_bytes
        self.room_bytes += self.idle_torch_bytes
        self.idle_torch_bytes = 0

    def new_stream(self) -> FakeStream:
        return FakeStream()

    def compute_stream(self) -> FakeStream:
        return self.compute

    def new_event(self, *, is_timed: bool) -> FakeEvent:
        return FakeEvent(self)

    def is_capturing(self) -> bool:
        return self.is_capture_on

    def _take(self, bytes: int) -> int:
        if bytes > self.room_bytes:
            raise CudaFailed("cudaMalloc", OUT_OF_MEMORY)
        self.room_bytes -= bytes
        memory = torch.full((bytes,), 0x55, dtype=torch.uint8)
        self.memory[memory.data_ptr()] = memory
        return memory.data_ptr()

    def _forget(self, address: int) -> None:
        memory = self.memory.pop(address)
        self.room_bytes += memory.nbytes
        self._used = {
            used: launch
            for used, launch in self._used.items()
            if not address <= used < address + memory.nbytes
        }

    def _check_hazard(self, address: int, bytes: int, stream: FakeStream) -> None:
        for used, launch in self._used.items():
            if address <= used < address + bytes:
                assert launch <= stream.seen_launches, "memory is overwritten that compute may read"
