"""The residency window: uploads each layer in time, and evicts layers by policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from memscope.events import Kind
from memscope_runners.memory.allocators import Allocator
from memscope_runners.memory.device import Buffer, Device
from memscope_runners.memory.parts import Part, Unit, split_layout
from memscope_runners.memory.policies import WindowPolicy
from memscope_runners.memory.transfer import Timing, Transfer
from memscope_runners.q8.slab import Q8Weight, SlabLayout
from memscope_runners.q8.weights import embedding_rows

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

# Plain ints: an enum member costs a lookup at each event.
_EVICT = int(Kind.EVICT)
_LAYER = int(Kind.LAYER)
_UPLOAD = int(Kind.UPLOAD)
_WAIT = int(Kind.WAIT)

POISON = 0x7F  # as scales NaN
WINDOW = {"reason": "window"}
SHUTDOWN = {"reason": "shutdown"}


class SlabSource(Protocol):
    """Where the slabs come from; layer L is the head."""

    @property
    def layer_layout(self) -> SlabLayout: ...
    @property
    def head_layout(self) -> SlabLayout: ...
    @property
    def fixed(self) -> Mapping[str, torch.Tensor]: ...
    def slab(self, layer: int) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class Load:
    """A layer on the device or being uploaded, for `step`."""

    layer: int
    step: int
    parts: tuple[Part, ...]
    buffers: list[Buffer]
    transfer: Transfer
    weights: dict[str, Q8Weight]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


class Residency:
    """A WeightSource for a device that need not hold the whole model.

    The weights of a layer are valid until the next layer is entered. With `prefetch`, the next
    layer is copied while this one computes. With `poison`, an evicted buffer is overwritten, so
    weights used after their eviction give NaN. Entering a layer raises DeviceOutOfMemory if
    its buffers do not fit.
    """

    def __init__(
        self,
        source: SlabSource,
        device: Device,
        allocator: Allocator,
        policy: WindowPolicy,
        *,
        unit: str = Unit.SLAB,
        prefetch: bool = False,
        poison: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        self.layers = policy.layers
        self._source = source
        self._device = device
        self._allocator = allocator
        self._policy = policy
        self._prefetch = prefetch
        self._poison = poison
        self._recorder = recorder
        self._layer_parts = split_layout(source.layer_layout, unit)
        self._head_parts = (Part.of_entry(source.head_layout.entry("lm_head")),)
        self._resident: dict[int, Load] = {}  # the one in flight among them
        self._ahead: dict[int, Load] = {}  # those of them in flight, in the order of their use
        self._unused: set[int] = set()  # uploaded and not entered since
        self._head: Load | None = None
        self._untimed: list[Load] = []  # compute waits for them
        self._is_marked = False
        self._step = 0

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of layers that are uploaded ahead and not entered yet."""
        return sum(load.bytes for load in self._ahead.values())

    def preload(self) -> int:
        """Upload lm_head and the layers that the policy preloads. Returns how many layers."""
        self._ready_head()
        layers = self._policy.preloaded()
        for layer in layers:
            self._is_marked = False
            self._ready(layer)
        return len(layers)

    def begin_step(self, step: int) -> None:
        """Begin step `step`; prefill is step 0."""
        self._step = step
        self._is_marked = False
        self._ready_head()

    def enter_layer(self, layer: int) -> Mapping[str, Q8Weight]:
        """The weights of the layer about to run, by entry name."""
        self._is_marked = False
        if layer in self._ahead:
            self._settle(self._ahead[layer])
        for other in self._policy.evicted(layer, self._resident):
            self._evict(other)
        load = self._ready(layer)
        self._unused.discard(layer)
        if self._recorder is not None:
            self._recorder.emit(_LAYER, self._step, layer)
        if self._prefetch:
            self._upload_ahead(layer)
        return load.weights

    def enter_head(self) -> Q8Weight:
        """lm_head, about to run."""
        load = self._ready_head()
        if self._recorder is not None:
            self._recorder.emit(_LAYER, self._step, self.layers)
        return load.weights["lm_head"]

    def head_rows(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings of int64 (tokens,): float32 (tokens, hidden)."""
        return embedding_rows(self._source.fixed, self._ready_head().weights["lm_head"], token_ids)

    def emit_uploads(self) -> None:
        """Record the uploads that compute waited for, once each is done.

        Call it while the device has work left: at the step's end nothing would
        hide the time that reading them takes.
        """
        if self._recorder is None:
            return
        left = []
        for load in self._untimed:
            timing = load.transfer.read()
            if timing is None:
                left.append(load)
            else:
                self._emit_upload(self._recorder, load, timing)
        self._untimed = left

    def end_step(self) -> None:
        """Call it before the step's own event: all events of the step are recorded then."""
        for load in [load for load in self._ahead.values() if load.step <= self._step]:
            self._settle(load)
        self.emit_uploads()
        self._device.end_step(self._step, self._recorder)
        if self._recorder is not None:
            sample, step = self._recorder.sample, self._step
            sample("residency.in_flight_bytes", bytes=self.in_flight_bytes, step=step)
            sample("pool.idle_bytes", bytes=self._allocator.idle_bytes, step=step)
            sample("device.allocated_bytes", bytes=self._device.allocated_bytes, step=step)
            sample("device.peak_bytes", bytes=self._device.peak_bytes, step=step)

    def close(self) -> None:
        """Release everything. Raises the error of an upload in flight, if it failed."""
        self._is_marked = False
        try:
            while self._ahead:
                self._settle(next(iter(self._ahead.values())))
        finally:
            self.emit_uploads()
            for load in [*self._resident.values(), *([self._head] if self._head else [])]:
                self._release(load, -1, SHUTDOWN)
            self._resident.clear()
            self._head = None
            self._allocator.close()

    def _ready(self, layer: int) -> Load:
        load = self._resident.get(layer)
        if load is None:
            load = self._start(layer, self._step, self._layer_parts, ahead=False)
            self._resident[layer] = load
            self._finish(load)
        return load

    def _ready_head(self) -> Load:
        if self._head is None:
            self._head = self._start(self.layers, self._step, self._head_parts, ahead=False)
            self._finish(self._head)
        return self._head

    def _upload_ahead(self, layer: int) -> None:
        following = self._policy.ahead(layer, self._resident, self._unused)
        if following is None:
            return
        for other in self._policy.evicted_ahead(following, self._resident):
            self._evict(other)
        step = self._step if following > layer else self._step + 1
        load = self._start(following, step, self._layer_parts, ahead=True)
        self._resident[following] = self._ahead[following] = load

    def _start(self, layer: int, step: int, parts: tuple[Part, ...], *, ahead: bool) -> Load:
        slab = self._source.slab(layer)
        buffers = self._take(parts, layer)
        copies = [(buffer, part.source(slab)) for buffer, part in zip(buffers, parts, strict=True)]
        try:
            transfer = self._device.start_upload(copies, ahead=ahead)
        except BaseException:
            self._give_back(parts, buffers, self._step, layer)
            raise
        self._unused.add(layer)
        return Load(layer, step, parts, buffers, transfer, self._weights(parts, buffers))

    def _take(self, parts: tuple[Part, ...], layer: int) -> list[Buffer]:
        buffers: list[Buffer] = []
        try:
            for part in parts:
                buffers.append(self._allocator.take(part.geometry, part.bytes, self._step, layer))
        except BaseException:
            self._give_back(parts, buffers, self._step, layer)
            raise
        return buffers

    def _weights(self, parts: tuple[Part, ...], buffers: list[Buffer]) -> dict[str, Q8Weight]:
        weights = {}
        for part, buffer in zip(parts, buffers, strict=True):
            if buffer.weights is None:
                buffer.weights = part.weights(self._device.tensor(buffer))
            for entry, weight in zip(part.entries, buffer.weights, strict=True):
                weights[entry.name] = weight
        return weights

    def _settle(self, load: Load) -> None:
        """Wait for the upload ahead; forget the layer if it failed."""
        del self._ahead[load.layer]
        try:
            self._finish(load)
        except BaseException:
            del self._resident[load.layer]
            self._give_back(load.parts, load.buffers, self._step, load.layer)
            raise

    def _finish(self, load: Load) -> None:
        self._mark_boundary()
        timing = load.transfer.wait()
        if self._recorder is None:
            return
        if timing is None:
            self._untimed.append(load)
        else:
            self._emit_upload(self._recorder, load, timing)

    def _mark_boundary(self) -> None:
        """Mark a boundary, at most once per layer: work with the weights before is launched."""
        if not self._is_marked:
            self._is_marked = True
            self._device.mark_boundary()

    def _emit_upload(self, recorder: Recorder, load: Load, timing: Timing) -> None:
        for part, duration_ns in zip(load.parts, timing.durations_ns, strict=True):
            recorder.emit(
                _UPLOAD,
                load.step,
                load.layer,
                name=part.name,
                bytes=part.bytes,
                duration_ns=duration_ns,
                value=len(part.entries),
                at_ns=load.transfer.issued_ns,
            )
        if timing.waited_ns:
            recorder.emit(
                _WAIT,
                load.step,
                load.layer,
                duration_ns=timing.waited_ns,
                at_ns=timing.ready_ns - timing.waited_ns,
            )

    def _evict(self, layer: int) -> None:
        load = self._resident[layer]
        if layer in self._ahead:
            self._settle(load)
        del self._resident[layer]
        self._release(load, self._step, WINDOW)

    def _release(self, load: Load, step: int, reason: dict[str, str]) -> None:
        if self._recorder is not None:
            self._recorder.emit(
                _EVICT,
                step,
                load.layer,
                bytes=load.bytes,
                value=len(load.weights),
                data=reason,
            )
        self._give_back(load.parts, load.buffers, step, load.layer)

    def _give_back(
        self, parts: tuple[Part, ...], buffers: list[Buffer], step: int, layer: int
    ) -> None:
        self._mark_boundary()
        for part, buffer in zip(parts, buffers, strict=False):  # fewer where taking failed
            if self._poison:
                self._device.fill(buffer, POISON)
            self._device.retire(buffer)
            self._allocator.give_back(buffer, part.geometry, step, layer)
