"""Allocators of the window: buffers for layers, taken back when a layer is evicted."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from memscope.errors import MemscopeError
from memscope_runners.memory.cuda_device import CudaDevice
from memscope_runners.memory.device import Buffer, Device
from memscope_runners.memory.driver import Driver
from memscope_runners.memory.static_pool import Planned, StaticPool
from memscope_runners.memory.weight_pool import WeightPool

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder


class AllocatorName(StrEnum):
    """Where a window's buffers come from."""

    NAIVE = "naive"  # cudaMalloc and cudaFree for each layer
    POOL = "pool"  # evicted buffers are reused
    STATIC = "static"  # all buffers are allocated before the first layer
    ASYNC = "async"  # cudaMallocAsync
    TORCH = "torch"  # torch's caching allocator


ALLOCATORS = {
    "host": (AllocatorName.NAIVE, AllocatorName.POOL, AllocatorName.STATIC),
    "cuda": tuple(AllocatorName),
}


class Allocator(Protocol):
    """Hands out buffers by geometry: buffers of one geometry have the same size and layout."""

    name: str

    @property
    def idle_bytes(self) -> int:
        """Bytes that are allocated on the device but held by no layer."""

    def take(self, geometry: str, bytes: int, step: int, layer: int) -> Buffer:
        """A buffer for `layer`; its content is undefined. Raises DeviceOutOfMemory."""

    def give_back(self, buffer: Buffer, geometry: str, step: int, layer: int) -> None:
        """Take the buffer back from `layer`."""

    def close(self) -> None:
        """Free all idle buffers."""


class CallAllocator:
    """Calls the driver each time: `naive` by cudaMalloc, `async` by cudaMallocAsync, `torch` by
    torch's caching allocator, with expandable segments if PYTORCH_CUDA_ALLOC_CONF says so."""

    idle_bytes = 0

    def __init__(self, name: str, driver: Driver) -> None:
        self.name = name
        self._driver = driver

    def take(self, geometry: str, bytes: int, step: int, layer: int) -> Buffer:
        return self._driver.malloc(bytes, step, layer)

    def give_back(self, buffer: Buffer, geometry: str, step: int, layer: int) -> None:
        self._driver.free(buffer, step, layer)

    def close(self) -> None:
        """Nothing to do: no buffer is ever idle."""


def make_allocator(
    name: str,
    device: Device,
    recorder: Recorder | None = None,
    planned: Iterable[Planned] = (),
) -> Allocator:
    """Make the allocator `name` for the weights on `device`. `planned`: buffers for `static`.

    Raises MemscopeError for an unknown name, DeviceOutOfMemory if `planned` does not fit.
    """
    check_allocator(name, device.kind)
    driver = Driver(device, "weight_pool", recorder)
    if name == AllocatorName.POOL:
        return WeightPool(driver)
    if name == AllocatorName.STATIC:
        return StaticPool(driver, planned)
    if isinstance(device, CudaDevice) and name == AllocatorName.ASYNC:
        driver = Driver(device, "weight_pool", recorder, device.malloc_async)
    if isinstance(device, CudaDevice) and name == AllocatorName.TORCH:
        # Torch's own calls stand in its counters; ours only ask it.
        driver = Driver(device, "weight_pool", None, device.malloc_torch)
    return CallAllocator(name, driver)


def check_allocator(name: str, kind: str) -> None:
    """Raises MemscopeError if this kind of device has no such allocator."""
    if name in ALLOCATORS[kind]:
        return
    names = f"Use one of {', '.join(ALLOCATORS[kind])}."
    if name in ALLOCATORS["cuda"]:
        raise MemscopeError(f"Allocator {name} needs a GPU.", names)
    raise MemscopeError(f"There is no allocator {name!r}.", names)
