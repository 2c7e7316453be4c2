"""Reads torch's counters at the boundaries of layers, within one forward.

Layers have hooks only while a forward is read. All other forwards run without.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from memscope.events import Kind
from memscope.probes.watch.model_layers import Layer, Undo, device_changes

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

# Plain ints: an enum member costs a lookup at each event.
_SAMPLE = int(Kind.SAMPLE)

BEFORE = -1  # the layer of a reading that was taken before the first layer of its device

_clock = time.perf_counter_ns


class Counters(Protocol):
    """Torch's counters of one device."""

    def read(self, device: int) -> tuple[int, int, int]:
        """Allocated bytes, reserved bytes, and the peak register of allocated bytes."""
        ...

    def reset_peak(self, device: int) -> None:
        """Set the peak register to what is allocated now."""
        ...


class CudaCounters:
    """Torch's own counters. They lie in host memory, so they can be read during graph capture."""

    def __init__(self, torch: Any) -> None:
        cheap = getattr(torch._C, "_cuda_memoryStats", None)
        self._read = cheap or torch.cuda.memory_stats_as_nested_dict
        self._reset = torch.cuda.reset_peak_memory_stats

    def read(self, device: int) -> tuple[int, int, int]:
        nested = self._read(device)
        allocated = nested["allocated_bytes"]["all"]
        return allocated["current"], nested["reserved_bytes"]["all"]["current"], allocated["peak"]

    def reset_peak(self, device: int) -> None:
        self._reset(device)


class Reading(NamedTuple):
    """Counters of one device after a layer, or before the device's first layer."""

    t_ns: int
    layer: int
    device: int
    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int


class LayerReader:
    """Reads one forward: ``start`` before it, ``stop`` after it."""

    def __init__(
        self, layers: tuple[Layer, ...], counters: Counters, *, resets_peaks: bool
    ) -> None:
        """``resets_peaks``: reset the peak register at each boundary, for each layer's own peak."""
        self._layers = tuple(layer for layer in layers if layer.device >= 0)
        self._read, self._reset = counters.read, counters.reset_peak if resets_peaks else None
        self._undo: list[Undo] = []
        self._readings: list[Reading] = []
        self._fault: Exception | None = None
        self.is_reading = False
        self.cost_ns = 0

    def __bool__(self) -> bool:
        return bool(self._layers)

    def start(self) -> None:
        """Put hooks on the layers."""
        start_ns = _clock()
        self.is_reading, self.cost_ns, self._readings = True, 0, []
        for layer in device_changes(self._layers):
            if (module := layer.module()) is not None:
                before = self._make_hook(BEFORE, layer.device)
                self._undo.append(module.register_forward_pre_hook(before).remove)
        for layer in self._layers:
            if (module := layer.module()) is not None:
                after = self._make_hook(layer.number, layer.device)
                self._undo.append(module.register_forward_hook(after).remove)
        self.cost_ns += _clock() - start_ns

    def stop(self) -> list[Reading]:
        """Take the hooks off and return the readings. Raises what a reading raised."""
        start_ns = _clock()
        while self._undo:
            self._undo.pop()()
        self.is_reading = False
        readings, self._readings = self._readings, []
        self.cost_ns += _clock() - start_ns
        if self._fault is not None:
            raise self._fault
        return readings

    def _make_hook(self, layer: int, device: int) -> Callable[..., None]:
        read, reset, keep = self._read, self._reset, self._readings.append

        def hook(*_: object) -> None:
            start_ns = _clock()
            try:
                keep(Reading(start_ns, layer, device, *read(device)))
                if reset is not None:
                    reset(device)
            except Exception as error:  # the program's forward goes on; `stop` tells
                self._fault = error
            self.cost_ns += _clock() - start_ns

        return hook


def emit_readings(recorder: Recorder, step: int, readings: list[Reading]) -> None:
    """Record three readings per boundary, once the forward has ended."""
    emit = recorder.emit
    for reading in readings:
        for reading_name, size in (
            ("torch.allocated_bytes", reading.allocated_bytes),
            ("torch.reserved_bytes", reading.reserved_bytes),
            ("torch.peak_allocated_bytes", reading.peak_allocated_bytes),
        ):
            emit(
                _SAMPLE,
                step,
                reading.layer,
                reading_name,
                size,
                device=reading.device,
                at_ns=reading.t_ns,
            )
