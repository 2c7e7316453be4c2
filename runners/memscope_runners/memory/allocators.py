"""Where the window's buffers come from, and where they go when a layer is evicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from memscope.errors import MemscopeError
from memscope_runners.memory.device import Buffer, Device
from memscope_runners.memory.driver import Driver
from memscope_runners.memory.weight_pool import WeightPool

if TYPE_CHECKING:
    from memscope.writer import Recorder

ALLOCATORS = ("naive", "pool")


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


class NaiveAllocator:
    """A driver call each time."""

    name = "naive"
    idle_bytes = 0

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def take(self, geometry: str, bytes: int, step: int, layer: int) -> Buffer:
        return self._driver.malloc(bytes, step, layer)

    def give_back(self, buffer: Buffer, geometry: str, step: int, layer: int) -> None:
        self._driver.free(buffer, step, layer)

    def close(self) -> None:
        """Nothing is ever idle."""


def make_allocator(name: str, device: Device, recorder: Recorder | None = None) -> Allocator:
    """The allocator of that name for the weights on `device`. Raises MemscopeError."""
    driver = Driver(device, "weight_pool", recorder)
    if name == "naive":
        return NaiveAllocator(driver)
    if name == "pool":
        return WeightPool(driver)
    raise MemscopeError(f"There is no allocator {name!r}.", f"Use one of {', '.join(ALLOCATORS)}.")
