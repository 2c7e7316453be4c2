"""Memory that each layer of a watched model takes, from torch's counters at its boundaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from memscope.analysis.timeline.samples import Samples

Numbers = npt.NDArray[np.int64]

MAX_LAYERS = 4096
MAX_DEVICES = 64
ALLOCATED, RESERVED, PEAK = range(3)
_READINGS = {
    "torch.allocated_bytes": ALLOCATED,
    "torch.reserved_bytes": RESERVED,
    "torch.peak_allocated_bytes": PEAK,
}


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """Mean change in bytes from a layer's start to its end, over all recorded forwards.

    ``peak_bytes``: the most bytes allocated while the layer ran. It is exact if the layer
    raised the process's peak, or if the peak counter is reset at each boundary; otherwise it is
    an upper bound, the process's peak.
    """

    layer: int
    name: str
    device: int
    readings: int
    allocated_delta: float
    reserved_delta: float
    peak_bytes: int
    is_upper_bound: bool

    def to_json(self) -> dict[str, Any]:
        """The layer as ``--json`` prints it."""
        return {name: getattr(self, name) for name in self.__slots__}


class LayerFold:
    """Folds batches into the memory of each layer."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], tuple[int, int]] = {}
        self._readings = np.zeros(MAX_LAYERS, dtype=np.int64)
        self._device = np.full(MAX_LAYERS, -1, dtype=np.int64)
        self._deltas = np.zeros((2, MAX_LAYERS), dtype=np.int64)
        self._register = np.full(MAX_LAYERS, -1, dtype=np.int64)
        self._raised = np.full(MAX_LAYERS, -1, dtype=np.int64)

    def add(self, samples: Samples, *, is_thinned: bool) -> None:
        """Fold the readings of one batch. Downsampled batches lack readings at layer boundaries."""
        if is_thinned:
            self._last.clear()
            return
        number = samples.number(_READINGS)
        is_inside = (samples.step >= 0) & (samples.device >= 0) & (samples.layer < MAX_LAYERS)
        is_wanted = is_inside & (number >= 0) & (samples.bytes >= 0)
        if not is_wanted.any():
            return
        number, samples = number[is_wanted], samples.where(is_wanted)
        key = samples.device.astype(np.int64) * len(_READINGS) + number
        for each in np.unique(key).tolist():
            device, which = divmod(each, len(_READINGS))
            if device < MAX_DEVICES:
                mine = samples.where(key == each)
                self._follow(device, which, mine.step, mine.layer, mine.bytes)

    def layers(self, names: Any, *, are_peaks_reset: bool) -> tuple[LayerMemory, ...]:
        """Every layer with readings. ``names``: layer names from the fact ``watch``."""
        names = names if isinstance(names, list) else []
        return tuple(
            self._layer(layer, names, are_peaks_reset)
            for layer in np.flatnonzero(self._readings).tolist()
        )

    def _follow(
        self, device: int, which: int, step: Numbers, layer: Numbers, size: Numbers
    ) -> None:
        """Add the differences between successive readings of one device within a step."""
        last = self._last.get((device, which), (-1, 0))
        step, before = np.append(last[0], step), np.append(last[1], size)[:-1]
        self._last[device, which] = int(step[-1]), int(size[-1])
        inside = np.flatnonzero((layer >= 0) & (step[1:] == step[:-1]))
        layer, size, before = layer[inside], size[inside], before[inside]
        if which == PEAK:
            self._register[layer] = size  # the last of several counts
            raised = size > before
            np.maximum.at(self._raised, layer[raised], size[raised])
            return
        np.add.at(self._deltas[which], layer, size - before)
        if which == ALLOCATED:
            np.add.at(self._readings, layer, 1)
            self._device[layer] = device

    def _layer(self, layer: int, names: list[Any], are_peaks_reset: bool) -> LayerMemory:
        readings = int(self._readings[layer])
        raised, register = int(self._raised[layer]), int(self._register[layer])
        is_known = are_peaks_reset or raised >= 0
        return LayerMemory(
            layer=int(layer),
            name=str(names[layer]) if layer < len(names) else f"layer {layer}",
            device=int(self._device[layer]),
            readings=readings,
            allocated_delta=float(self._deltas[ALLOCATED, layer] / readings),
            reserved_delta=float(self._deltas[RESERVED, layer] / readings),
            peak_bytes=raised if raised >= 0 and not are_peaks_reset else register,
            is_upper_bound=not is_known,
        )
