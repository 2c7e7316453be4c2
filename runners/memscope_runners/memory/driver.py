"""The driver calls of one owner of device memory, each recorded as an event."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING

from memscope.events import Kind
from memscope_runners.memory.device import Buffer, Device, DeviceOutOfMemory

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

# Plain ints: an enum member costs a lookup at each event.
_ALLOC_RETRY = int(Kind.ALLOC_RETRY)
_DEVICE_FREE = int(Kind.DEVICE_FREE)
_DEVICE_MALLOC = int(Kind.DEVICE_MALLOC)


class Driver:
    """malloc and free on `device` for `owner` ("weight_pool", "kv", "fixed")."""

    def __init__(
        self,
        device: Device,
        owner: str,
        recorder: Recorder | None = None,
        malloc: Callable[[int, str], Buffer] | None = None,
    ) -> None:
        """`malloc` (bytes, owner): the device call to use; default `device.malloc`."""
        self.device = device
        self.owner = owner
        self.recorder = recorder
        self._device_malloc = malloc or device.malloc

    def malloc(
        self,
        bytes: int,
        step: int = -1,
        layer: int = -1,
        make_room: Callable[[int, int], bool] | None = None,
    ) -> Buffer:
        """Allocate a new buffer. Raises DeviceOutOfMemory.

        If the device is full, `make_room` (step, layer) frees what it can, then the device
        releases what it can, and the call is tried once more.
        """
        try:
            return self._malloc(bytes, step, layer)
        except DeviceOutOfMemory:
            has_room = make_room is not None and make_room(step, layer)
            if not (self.device.reclaim() or has_room):
                raise
        buffer = self._malloc(bytes, step, layer)
        if self.recorder is not None:
            self.recorder.emit(_ALLOC_RETRY, step, layer, bytes=bytes)
        return buffer

    def free(self, buffer: Buffer, step: int = -1, layer: int = -1) -> None:
        """Free the buffer on the device."""
        started_ns = perf_counter_ns()
        self.device.free(buffer)
        self._emit(_DEVICE_FREE, buffer, step, layer, started_ns)

    def _malloc(self, bytes: int, step: int, layer: int) -> Buffer:
        started_ns = perf_counter_ns()
        buffer = self._device_malloc(bytes, self.owner)
        self._emit(_DEVICE_MALLOC, buffer, step, layer, started_ns)
        return buffer

    def _emit(self, kind: int, buffer: Buffer, step: int, layer: int, started_ns: int) -> None:
        if self.recorder is not None:
            self.recorder.emit(
                kind,
                step,
                layer,
                name=self.owner,
                bytes=buffer.bytes,
                address=buffer.address,
                duration_ns=perf_counter_ns() - started_ns,
            )
