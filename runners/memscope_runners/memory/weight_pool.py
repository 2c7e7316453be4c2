"""The weight pool: keeps buffers of evicted layers for the next layer of the same geometry."""

from __future__ import annotations

from memscope.events import Kind
from memscope_runners.memory.device import Buffer
from memscope_runners.memory.driver import Driver

# Plain ints: an enum member costs a lookup at each event.
_POOL_HIT = int(Kind.POOL_HIT)
_POOL_MISS = int(Kind.POOL_MISS)
_POOL_OVERFLOW = int(Kind.POOL_OVERFLOW)
_POOL_RETURN = int(Kind.POOL_RETURN)

MAX_IDLE_BUFFERS = 128


class WeightPool:
    """Reuses a buffer only for its exact geometry, in constant time; keeps at most `max_idle`.

    Buffers beyond that are freed. If the device is full, the idle buffers of
    the other geometries are freed and the allocation is tried once more.
    """

    name = "pool"

    def __init__(self, driver: Driver, *, max_idle: int = MAX_IDLE_BUFFERS) -> None:
        self.idle_bytes = 0
        self.idle_count = 0
        self._driver = driver
        self._recorder = driver.recorder
        self._max_idle = max_idle
        self._idle: dict[str, list[Buffer]] = {}

    def take(self, geometry: str, bytes: int, step: int, layer: int) -> Buffer:
        """A buffer of that geometry, reused or new. Raises DeviceOutOfMemory."""
        idle = self._idle.get(geometry)
        if not idle:
            self._emit(_POOL_MISS, geometry, bytes, step, layer)
            # Whatever is idle has another geometry.
            return self._driver.malloc(bytes, step, layer, make_room=self._free_idle)
        buffer = idle.pop()
        assert buffer.bytes == bytes, f"geometry {geometry}: {buffer.bytes} and {bytes} bytes"
        self.idle_count -= 1
        self.idle_bytes -= bytes
        self._emit(_POOL_HIT, geometry, bytes, step, layer)
        return buffer

    def give_back(self, buffer: Buffer, geometry: str, step: int, layer: int) -> None:
        """Keep the buffer for reuse, or free it if the pool is full."""
        if self.idle_count >= self._max_idle:
            self._emit(_POOL_OVERFLOW, geometry, buffer.bytes, step, layer)
            self._driver.free(buffer, step, layer)
            return
        self._idle.setdefault(geometry, []).append(buffer)
        self.idle_count += 1
        self.idle_bytes += buffer.bytes
        self._emit(_POOL_RETURN, geometry, buffer.bytes, step, layer)

    def close(self) -> None:
        """Frees every idle buffer."""
        self._free_idle(-1, -1)

    def _free_idle(self, step: int, layer: int) -> bool:
        """Free all idle buffers. Returns whether there were any."""
        had_any = self.idle_count > 0
        for buffers in self._idle.values():
            for buffer in buffers:
                self._driver.free(buffer, step, layer)
        self._idle.clear()
        self.idle_count = self.idle_bytes = 0
        return had_any

    def _emit(self, kind: int, geometry: str, bytes: int, step: int, layer: int) -> None:
        if self._recorder is not None:
            self._recorder.emit(kind, step, layer, name=geometry, bytes=bytes)
