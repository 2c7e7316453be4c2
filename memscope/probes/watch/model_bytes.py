"""Bytes of a model's weights, gradients and optimizer state by device, read after a step."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from memscope.probes.torch.allocator import cuda_torch, read_counters
from memscope.probes.watch.kv_cache import READING as KV_READING
from memscope.probes.watch.kv_cache import kv_bytes

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

COUNTERS = ("active_bytes", "allocated_bytes", "reserved_bytes", "peak_allocated_bytes")

ByDevice = dict[int, int]


class ModelSampler:
    """Records ``model.*`` per device, and ``torch.*`` of the devices that hold the model."""

    def __init__(self, model: Any, optimizer: Any = None) -> None:
        self._bytes = ModelBytes(model, optimizer)
        self._known: dict[str, set[int]] = {}

    def sample(self, recorder: Recorder, step: int) -> None:
        """Take all readings now."""
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
        """Record zero, too, once there was something: gradients are freed, caches end."""
        known = self._known.setdefault(reading_name, set())
        known |= sizes.keys()
        for device in known:
            recorder.sample(reading_name, bytes=sizes.get(device, 0), step=step, device=device)


class ModelBytes:
    """Sizes of one model. Each is counted again only if something has changed.

    A change shows in the number of tensors and their addresses. Sizes are those of storages, so
    tied weights and views count once.
    """

    def __init__(self, model: Any, optimizer: Any = None) -> None:
        self._model = weakref.ref(model)
        self._optimizer = None if optimizer is None else weakref.ref(optimizer)
        self._cached: dict[str, tuple[int, ByDevice]] = {}

    def read(self) -> dict[str, ByDevice]:
        """Reading → device (-1 for the host) → bytes. Empty once the model is gone."""
        model = self._model()
        if model is None:
            return {}
        weights = _weights(model)
        gradients = [tensor.grad for tensor in weights if tensor.grad is not None]
        found = {
            "model.weights_bytes": self._count("weights", weights),
            "model.gradients_bytes": self._count("gradients", gradients),
        }
        optimizer = self._optimizer() if self._optimizer is not None else None
        if optimizer is not None:
            state = list(_tensors(optimizer.state.values()))
            found["model.optimizer_bytes"] = self._count("optimizer", state)
        return found

    def _count(self, what: str, tensors: list[Any]) -> ByDevice:
        tensors = [getattr(tensor, "_local_tensor", tensor) for tensor in tensors]  # of DTensors
        signature = hash(tuple(tensor.data_ptr() for tensor in tensors))
        cached = self._cached.get(what)
        if cached is None or cached[0] != signature:
            cached = signature, storage_bytes(tensors)
            self._cached[what] = cached
        return cached[1]


def _weights(model: Any) -> list[Any]:
    """Parameters and buffers, tied ones more than once.

    A third of the cost of torch's own walk, which makes a name for each module and tensor.
    """
    found: list[Any] = []
    modules, known = [model], {model}
    for module in modules:
        found += module._parameters.values()
        found += module._buffers.values()
        for inner in module._modules.values():
            if inner is not None and inner not in known:
                known.add(inner)
                modules.append(inner)
    return [tensor for tensor in found if tensor is not None]


def storage_bytes(tensors: Iterable[Any]) -> ByDevice:
    """Bytes of the storages of ``tensors`` per device, each storage once."""
    found: dict[tuple[int, int], int] = {}
    for tensor in tensors:
        kind = tensor.device.type
        if kind == "meta":
            continue
        storage = tensor.untyped_storage()
        device = (tensor.device.index or 0) if kind == "cuda" else -1
        found[device, storage.data_ptr()] = storage.nbytes()
    total: ByDevice = {}
    for (device, _), size in found.items():
        total[device] = total.get(device, 0) + size
    return total


def _tensors(states: Iterable[Any]) -> Iterable[Any]:
    """The tensors of an optimizer's state, which nests dicts and lists."""
    for state in states:
        if hasattr(state, "untyped_storage"):
            yield state
        elif isinstance(state, Mapping):
            yield from _tensors(state.values())
        elif isinstance(state, list | tuple):
            yield from _tensors(state)
