"""The static allocator: all buffers are made before the first layer, none later."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from memscope.events import Kind
from memscope_runners.memory.device import Buffer
from memscope_runners.memory.driver import Driver

# Plain ints: an enum member costs a lookup at each event.
_POOL_HIT = int(Kind.POOL_HIT)
_POOL_RETURN = int(Kind.POOL_RETURN)


@dataclass(frozen=True, slots=True)
class Planned:
    """How many buffers of one geometry to make."""

    geometry: str
    bytes: int
    count: int


class StaticPool:
    """Hands out the planned buffers only, so every request is a hit. Raises DeviceOutOfMemory."""

    name = "static"

    def __init__(self, driver: Driver, planned: Iterable[Planned]) -> None:
        self.idle_bytes = 0
        self._driver = driver
        self._recorder = driver.recorder
        self._idle: dict[str, deque[Buffer]] = {}
        try:
            for plan in planned:
                self._allocate(plan)
        except BaseException:
            self.close()
            raise

    def take(self, geometry: str, bytes: int, step: int, layer: int) -> Buffer:
        """The buffer of that geometry that was idle longest."""
        idle = self._idle.get(geometry)
        assert idle, f"no {geometry} is left of those planned"
        self.idle_bytes -= bytes
        self._emit(_POOL_HIT, geometry, bytes, step, layer)
        return idle.popleft()

    def give_back(self, buffer: Buffer, geometry: str, step: int, layer: int) -> None:
        """Keep the buffer for reuse."""
        self._idle[geometry].append(buffer)
        self.idle_bytes += buffer.bytes
        self._emit(_POOL_RETURN, geometry, buffer.bytes, step, layer)

    def close(self) -> None:
        """Frees every idle buffer."""
        for buffers in self._idle.values():
            for buffer in buffers:
                self._driver.free(buffer)
        self._idle.clear()
        self.idle_bytes = 0

    def _allocate(self, plan: Planned) -> None:
        idle = self._idle.setdefault(plan.geometry, deque())
        for _ in range(plan.count):
            idle.append(self._driver.malloc(plan.bytes))
            self.idle_bytes += plan.bytes

    def _emit(self, kind: int, geometry: str, bytes: int, step: int, layer: int) -> None:
        if self._recorder is not None:
            self._recorder.emit(kind, step, layer, name=geometry, bytes=bytes)
