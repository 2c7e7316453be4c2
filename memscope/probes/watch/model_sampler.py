"""Readings at the end of a step: what the model holds, and torch's counters beside it."""

from __future__ import annotations

from typing import Any

from memscope.probes.torch.allocator import cuda_torch, read_counters
from memscope.probes.watch.kv_cache import READING as KV_READING
from memscope.probes.watch.kv_cache import kv_bytes
from memscope.probes.watch.model_bytes import ByDevice, ModelBytes
from memscope.recorder.recorder import Recorder

COUNTERS = ("active_bytes", "allocated_bytes", "reserved_bytes", "peak_allocated_bytes")


class ModelSampler:
    """Samples ``model.*`` for each device, and ``torch.*`` of the devices where it lies."""

    def __init__(self, model: Any, optimizer: Any = None) -> None:
        self._bytes = ModelBytes(model, optimizer)
        self._known: dict[str, set[int]] = {}

    def sample(self, recorder: Recorder, step: int) -> None:
        """Take all of them now."""
        held = self._bytes.read() | {KV_READING: kv_bytes()}
        for reading_name, sizes in held.items():
            self._sample_sizes(recorder, step, reading_name, sizes)
        torch = cuda_torch()
        devices = sorted({device for sizes in held.values() for device in sizes} - {-1})
        for device in devices if torch is not None else ():
            counters = read_counters(torch, device)
            for name in COUNTERS:
                reading_name = f"torch.{name}"
                recorder.sample(reading_name, bytes=counters[name], step=step, device=device)

    def _sample_sizes(
        self, recorder: Recorder, step: int, reading_name: str, sizes: ByDevice
    ) -> None:
        """Zero too, once there was something: gradients are let go of, caches die."""
        known = self._known.setdefault(reading_name, set())
        known |= sizes.keys()
        for device in known:
            recorder.sample(reading_name, bytes=sizes.get(device, 0), step=step, device=device)
