"""The driver calls that one owner of device memory makes, each with its row."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

from memscope import events
from memscope_runners.memory.device import Buffer, Device

if TYPE_CHECKING:
    from memscope.writer import Recorder


class Driver:
    """malloc and free on `device` for `owner` ("weight_pool", "kv", "fixed")."""

    def __init__(self, device: Device, owner: str, recorder: Recorder | None = None) -> None:
        self.device = device
        self.owner = owner
        self.recorder = recorder

    def malloc(self, bytes: int, step: int = -1, layer: int = -1) -> Buffer:
        """A fresh buffer. Raises DeviceOutOfMemory."""
        started_ns = perf_counter_ns()
        buffer = self.device.malloc(bytes, self.owner)
        self._emit(events.DEVICE_MALLOC, buffer, step, layer, started_ns)
        return buffer

    def free(self, buffer: Buffer, step: int = -1, layer: int = -1) -> None:
        """Gives the buffer back to the device."""
        started_ns = perf_counter_ns()
        self.device.free(buffer)
        self._emit(events.DEVICE_FREE, buffer, step, layer, started_ns)

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
