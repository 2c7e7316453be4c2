"""Where the window's buffers come from, and where they go when a layer is evicted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from memscope.errors import MemscopeError
from memscope_runners.memory.cuda_device import CudaDevice
from memscope_runners.memory.device import Buffer, Device
from memscope_runners.memory.driver import Driver
from memscope_runners.memory.static_pool import Planned, StaticPool
from memscope_runners.memory.weight_pool import WeightPool

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

ALLOCATORS = {
    "host": ("naive", "pool", "static"),
    "cuda": ("naive", "pool", "static", "async", "torch"),
}


class Allocator(Protocol):
    """Buffers by geometry: two buffers of one geometry have the same size and layout."""

    name: str

    @property
    def idle_bytes(self) -> int:
        """Bytes taken from the device that no layer holds."""

    def take(self, geometry: str, bytes: int, step: int, layer: int) -> Buffer:
        """A buffer for `layer`, of undefined content. Raises DeviceOutOfMemory."""

    def give_back(self, buffer: Buffer, geometry: str, step: int, layer: int) -> None:
        """`layer` needs the buffer no longer."""

    def close(self) -> None:
        """Frees whatever is idle."""


class CallAllocator:
    """A call each time: `naive` by cudaMalloc, `async` by cudaMallocAsync, `torch` by torch's
    caching allocator, with expandable segments where PYTORCH_CUDA_ALLOC_CONF says so."""

    idle_bytes = 0

    def __init__(self, name: str, driver: Driver) -> None:
        self.name = name
        self._driver = driver

    def take(self, geometry: str, bytes: int, step: int, layer: int) -> Buffer:
        return self._driver.malloc(bytes, step, layer)

    def give_back(self, buffer: Buffer, geometry: str, step: int, layer: int) -> None:
        self._driver.free(buffer, step, layer)

    def close(self) -> None:
        """Nothing of it is idle here."""


def make_allocator(
    name: str,
    device: Device,
    recorder: Recorder | None = None,
    planned: Iterable[Planned] = (),
) -> Allocator:
    """The allocator of that name for the weights on `device`; `planned` is for `static`.

    Raises MemscopeError, and DeviceOutOfMemory where what is planned does not fit.
    """
    check_allocator(name, device.kind)
    driver = Driver(device, "weight_pool", recorder)
    if name == "pool":
        return WeightPool(driver)
    if name == "static":
        return StaticPool(driver, planned)
    if isinstance(device, CudaDevice) and name == "async":
        driver = Driver(device, "weight_pool", recorder, device.malloc_async)
    if isinstance(device, CudaDevice) and name == "torch":
        # Torch's own calls stand in its counters; ours only ask it.
        driver = Driver(device, "weight_pool", None, device.malloc_torch)
    return CallAllocator(name, driver)


def check_allocator(name: str, kind: str) -> None:
    """Raises MemscopeError where a device of that kind has no such allocator."""
    if name in ALLOCATORS[kind]:
        return
    names = f"Use one of {', '.join(ALLOCATORS[kind])}."
    if name in ALLOCATORS["cuda"]:
        raise MemscopeError(f"Allocator {name} needs a GPU.", names)
    raise MemscopeError(f"There is no allocator {name!r}.", names)
