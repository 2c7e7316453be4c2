"""Follows a model with hooks: steps, memory at layers, weights, gradients, optimizer state.

One forward in N is read at the boundaries of its layers. N depends on the cost of reading.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from memscope.facts import Fact, StepSource, probe_fact
from memscope.probes.pace import LAYER_SHARE, StepPace, TimePace
from memscope.probes.torch.allocator import cuda_torch
from memscope.probes.watch.kv_cache import follow_caches, unfollow_caches
from memscope.probes.watch.layer_reader import Counters, CudaCounters, LayerReader, emit_readings
from memscope.probes.watch.model_bytes import ModelSampler
from memscope.probes.watch.model_layers import (
    DEFAULT_LAYERS,
    Layer,
    Undo,
    find_layers,
    follow_calls,
    is_compiled_whole,
)
from memscope.recorder.active import active_recorder

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder


def watch(
    model: Any,
    layers: str | None = DEFAULT_LAYERS,
    optimizer: Any = None,
    recorder: Recorder | None = None,
    layer_peaks: bool = False,
) -> Watch:
    """Record steps and memory of ``model`` until the returned handle is closed.

    A step is one call of ``optimizer.step`` if an optimizer is given, else one outermost forward.
    If the program marks steps itself, only those count.

    ``layers``: path of the list of layers; None reads no layers. ``recorder``: the active recorder
    if None; if there is none, nothing is recorded. ``layer_peaks``: read each layer's own peak, by
    resetting torch's peak register at each boundary. Raises MemscopeError if there is no such list.
    """
    recorder = recorder or active_recorder()
    if recorder is None:
        return Watch(None, model, (), optimizer)
    compiled = is_compiled_whole(model)
    found = () if layers is None or compiled else find_layers(model, layers)
    watching = Watch(recorder, model, found, optimizer, resets_peaks=layer_peaks)
    recorder.fact(Fact.MODEL, {"name": type(model).__name__})
    recorder.fact(Fact.WATCH, describe(watching, layers, is_compiled=compiled, resets=layer_peaks))
    return watching


def describe(
    watching: Watch, path: str | None, *, is_compiled: bool, resets: bool
) -> dict[str, object]:
    """What is followed, and what cannot be seen and why."""
    unseen = []
    if is_compiled and path is not None:
        unseen.append("layers: torch.compile made one graph of the model, without boundaries in it")
    if any(layer.device < 0 for layer in watching.layers):
        unseen.append("layers on the host: torch counts allocations of GPUs alone")
    return {
        "layers": [layer.name for layer in watching.layers],
        "devices": [layer.device for layer in watching.layers],
        "step": "optimizer.step" if watching.has_optimizer else "outermost forward",
        "layer_peaks": "reset at each boundary" if resets else "process register",
        "cannot_see": unseen,
    }


class Watch:
    """The handle of a followed model. ``close`` removes all hooks.

    A fault in memscope ends the watch, never the program. The fact ``probe.watch`` says why.
    """

    def __init__(
        self,
        recorder: Recorder | None,
        model: Any,
        layers: tuple[Layer, ...],
        optimizer: Any = None,
        *,
        counters: Counters | None = None,
        resets_peaks: bool = False,
    ) -> None:
        """``counters``: of the allocator. None reads torch's, once it has initialised CUDA."""
        self.layers = layers
        self.has_optimizer = optimizer is not None
        self.pace = StepPace()
        self._recorder, self._counters, self._resets_peaks = recorder, counters, resets_peaks
        self._sampler = ModelSampler(model, optimizer)
        self._step_pace = TimePace()
        self._reader: LayerReader | None = None
        self._step, self._step_start_ns = -1, 0
        self._step_end_ns = 0
        self._depth, self._thread = 0, 0
        self._undo: list[Undo] = []
        if recorder is not None:
            self._attach(model, optimizer)

    def close(self) -> None:
        """Remove the hooks. Safe to call twice."""
        if self._reader is not None and self._reader.is_reading:
            with contextlib.suppress(Exception):  # a fault of a reading that nobody asks for now
                self._reader.stop()
        while self._undo:
            self._undo.pop()()
        recorder, self._recorder = self._recorder, None
        if recorder is not None and not self.pace.steps:
            reason = "no forward was seen: the model was not called, or inside torch.compile"
            recorder.fact(probe_fact("watch"), {"saw": reason})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- hooks, on the program's thread -------------------------------------------------------

    def _attach(self, model: Any, optimizer: Any) -> None:
        begin, end = self._guard(self._begin_forward), self._guard(self._end_forward)
        self._undo.append(follow_calls(model, begin, end))
        if optimizer is not None:
            end_step = self._guard(self._end_optimizer_step)
            handle = optimizer.register_step_post_hook(lambda *_: end_step())
            self._undo.append(handle.remove)
        if follow_caches():
            self._undo.append(unfollow_caches)

    def _guard(self, call: Callable[[Recorder], None]) -> Callable[[], None]:
        def guarded() -> None:
            recorder = self._recorder
            if recorder is None:
                return
            try:
                call(recorder)
            except Exception as error:
                recorder.fact(probe_fact("watch"), {"stopped": f"{type(error).__name__}: {error}"})
                self.close()

        return guarded

    def _begin_forward(self, recorder: Recorder) -> None:
        """Begins only with the outermost call on one thread, and not while tracing."""
        if _is_tracing():
            return
        if self._depth:
            self._depth += self._thread == threading.get_ident()
            return
        self._depth, self._thread = 1, threading.get_ident()
        now_ns = recorder.clock()
        self._begin_step(recorder, now_ns)
        if self.pace.start_step(now_ns) and self._can_read():
            self._reader.start()  # type: ignore[union-attr]

    def _end_forward(self, recorder: Recorder) -> None:
        if not self._depth or self._thread != threading.get_ident() or _is_tracing():
            return
        self._depth -= 1
        if self._depth:
            return
        if self._reader is not None and self._reader.is_reading:
            self._end_reading(recorder, self._reader)
        if not self.has_optimizer:
            self._end_step(recorder)

    def _end_optimizer_step(self, recorder: Recorder) -> None:
        now_ns = recorder.clock()
        self._begin_step(recorder, now_ns)  # where no forward was seen
        self._end_step(recorder)

    def _begin_step(self, recorder: Recorder, now_ns: int) -> None:
        """Begin a step, unless one is open or the program marks steps."""
        if recorder.step_source == StepSource.MARKED:
            return
        recorder.take_steps(StepSource.WATCH)
        if recorder.open_step >= 0:
            return
        is_next = self.has_optimizer and self._step_start_ns
        self._step_start_ns = self._step_end_ns if is_next else now_ns
        self._step = recorder.begin_step()

    def _end_step(self, recorder: Recorder) -> None:
        """End a step that was begun here. The program ends its own."""
        number = recorder.open_step
        now_ns = recorder.clock()
        if self._step_pace.is_due(now_ns):
            self._sampler.sample(recorder, number)
            end_ns = recorder.clock()
            self._step_pace.end_read(end_ns, end_ns - now_ns)
        if number >= 0 and number == self._step:
            recorder.end_step(number, self._step_start_ns)
            self._step_end_ns = recorder.clock()

    # -- readings -----------------------------------------------------------------------------

    def _can_read(self) -> bool:
        """Whether there are layers to read, and counters to read."""
        if self._reader is None:
            counters = self._counters
            if counters is None and (torch := cuda_torch()) is not None:
                counters = CudaCounters(torch)
            if counters is None:
                return False
            layers = self.layers
            self._reader = LayerReader(layers, counters, resets_peaks=self._resets_peaks)
        return bool(self._reader)

    def _end_reading(self, recorder: Recorder, reader: LayerReader) -> None:
        readings = reader.stop()
        start_ns = recorder.clock()
        emit_readings(recorder, recorder.open_step, readings)
        cost_ns = reader.cost_ns + recorder.clock() - start_ns
        if self.pace.end_read(cost_ns):
            recorder.fact(Fact.WATCH_PACE, self._describe_pace())

    def _describe_pace(self) -> dict[str, object]:
        step_ns = self.pace.step_ns
        return {
            "every": self.pace.every,
            "cost_ns": round(self.pace.cost_ns),
            "step_ns": None if math.isnan(step_ns) else round(step_ns),
            "share": LAYER_SHARE,
        }


def _is_tracing() -> bool:
    """Whether torch.compile is tracing a hook, whose work it leaves out."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return compiler is not None and bool(compiler.is_compiling())
