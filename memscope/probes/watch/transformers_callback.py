"""A callback for transformers' Trainer: watches its training and marks its epochs.

transformers is imported only when the callback is created.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from memscope.errors import MemscopeError
from memscope.probes.watch.model_layers import DEFAULT_LAYERS
from memscope.probes.watch.watch import Watch, watch
from memscope.recorder.active import active_recorder

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder


def trainer_callback(
    recorder: Recorder | None = None, layers: str | None = DEFAULT_LAYERS, layer_peaks: bool = False
) -> Any:
    """A ``TrainerCallback`` that watches the model and its optimizer while it trains.

    Pass it as ``Trainer(..., callbacks=[trainer_callback()])`` inside ``with
    memscope.record(...)``, or under ``memscope run``. Arguments are those of ``memscope.watch``.
    Raises MemscopeError if transformers is not installed.
    """
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        raise MemscopeError("transformers is not installed.", "pip install transformers") from None
    following = _Following(recorder, layers, layer_peaks)

    class MemscopeCallback(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        """Passes the trainer's events on."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **names: Any) -> None:
            following.begin(names.get("model"), names.get("optimizer"))

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **names: Any) -> None:
            following.mark(f"epoch {state.epoch or 0:g}")

        def on_evaluate(self, args: Any, state: Any, control: Any, **names: Any) -> None:
            following.mark("evaluated")

        def on_save(self, args: Any, state: Any, control: Any, **names: Any) -> None:
            following.mark("saved")

        def on_train_end(self, args: Any, state: Any, control: Any, **names: Any) -> None:
            following.end()

    return MemscopeCallback()


class _Following:
    """The watch of one training at a time."""

    def __init__(self, recorder: Recorder | None, layers: str | None, layer_peaks: bool) -> None:
        self._recorder, self._layers, self._layer_peaks = recorder, layers, layer_peaks
        self._watch: Watch | None = None

    def begin(self, model: Any, optimizer: Any) -> None:
        self.end()
        if model is not None:
            inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
            self._watch = watch(model, self._layers, inner, self._recorder, self._layer_peaks)

    def mark(self, name: str) -> None:
        recorder = self._recorder or active_recorder()
        if recorder is not None:
            recorder.mark(name)

    def end(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
