"""Steps of a program that marks none: optimizer steps, else outermost forwards, else seconds.

Between outermost forwards, one global torch hook is armed. The next forward removes it, so the
modules inside run without it, and a step ends when that forward returns. A module that is not
running carries none of our hooks, so copies, exports and graphs of it have none. With torch.compile
nothing is hooked: its guards would notice and compile again.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

from memscope.facts import StepSource

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

SECOND_NS = 1_000_000_000
# Each replaces those before it.
SOURCES: tuple[str, ...] = (StepSource.SECOND, StepSource.FORWARD, StepSource.OPTIMIZER)


class StepProbe:
    """Ends steps by the best sign the program gives. ``run.step_source`` names it.

    A step lasts from one sign to the next. This stops once the program or ``watch`` marks steps.
    """

    name = "steps"

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._source = ""
        self._number, self._start_ns = -1, 0
        self._lock = threading.Lock()
        self._optimizer_hook: Any = None
        self._forward_hook: Any = None
        self._inner_hook: Any = None
        self._thread = 0
        self._is_disarmed = False

    def __call__(self, recorder: Recorder) -> None:
        """Ten times a second, on the recorder's thread: hook torch, and end steps of one second."""
        if recorder.is_closing:
            return
        if self._recorder is None:
            self._recorder = recorder
            if recorder.step_source is None:
                self._take(recorder, StepSource.SECOND)
                self._begin_step(recorder)
        if not self._is_mine():
            self.close()
            return
        self._hook_torch()
        if self._source == StepSource.SECOND and recorder.clock() - self._start_ns >= SECOND_NS:
            self._end_step(StepSource.SECOND)

    def close(self) -> None:
        """Take the hooks off."""
        self._is_disarmed = True
        for hook in (self._optimizer_hook, self._forward_hook, self._inner_hook):
            if hook is not None:
                with contextlib.suppress(Exception):
                    hook.remove()
        self._optimizer_hook = self._forward_hook = self._inner_hook = None

    def _is_mine(self) -> bool:
        return self._recorder is not None and self._recorder.step_source == self._source

    def _take(self, recorder: Recorder, source: str) -> None:
        self._source = source
        recorder.take_steps(source)

    def _begin_step(self, recorder: Recorder) -> None:
        self._start_ns = recorder.clock()
        self._number = recorder.begin_step()

    def _end_step(self, source: str) -> None:
        """A sign of ``source`` was seen: a step ends and the next begins."""
        recorder = self._recorder
        with self._lock:
            if recorder is None or not self._is_mine():
                return
            if SOURCES.index(source) < SOURCES.index(self._source):
                return
            if source != self._source:
                self._take(recorder, source)
            recorder.end_step(self._number, self._start_ns)
            self._begin_step(recorder)

    # -- torch --------------------------------------------------------------------------------

    def _hook_torch(self) -> None:
        torch = sys.modules.get("torch")
        spec = getattr(torch, "__spec__", None)
        if torch is None or getattr(spec, "_initializing", True):
            return
        if self._optimizer_hook is None:
            optimizers = sys.modules.get("torch.optim.optimizer")
            register = getattr(optimizers, "register_optimizer_step_post_hook", None)
            if register is not None:
                self._optimizer_hook = register(self._after_optimizer)
        if self._source == StepSource.OPTIMIZER or uses_compiler():
            self._is_disarmed = True
            self._disarm()
        elif self._forward_hook is None and not self._is_in_forward():
            self._remove_inner()
            _quiet_compiler()
            self._arm()

    def _after_optimizer(self, *_: object) -> None:
        if not is_being_compiled():
            self._end_step(StepSource.OPTIMIZER)

    def _arm(self) -> None:
        modules = sys.modules.get("torch.nn.modules.module")
        if modules is not None and not self._is_disarmed:
            self._forward_hook = modules.register_module_forward_pre_hook(self._before_forward)

    def _disarm(self) -> None:
        hook, self._forward_hook = self._forward_hook, None
        if hook is not None:
            hook.remove()

    def _before_forward(self, module: Any, *_: object) -> None:
        """The outermost forward begins: hook its end, and nothing inside it."""
        if is_being_compiled():
            return
        self._disarm()
        if self._is_disarmed or uses_compiler():
            return
        self._thread = threading.get_ident()
        self._remove_inner()
        self._inner_hook = module.register_forward_hook(self._after_forward, always_call=True)

    def _after_forward(self, _: object, __: object, output: object) -> None:
        """It ended, without an output by an exception; torch then still walks its hooks."""
        if is_being_compiled():
            return
        self._thread = 0
        if output is not None:
            self._remove_inner()
        self._arm()
        self._end_step(StepSource.FORWARD)

    def _remove_inner(self) -> None:
        hook, self._inner_hook = self._inner_hook, None
        if hook is not None:
            hook.remove()

    def _is_in_forward(self) -> bool:
        """Whether a thread runs a module now. An inner module would look like the outermost."""
        call = _call_code()
        own = threading.get_ident()
        for thread, frame in sys._current_frames().items():
            place: Any = frame
            while place is not None and thread != own:
                if place.f_code is call:
                    return True
                place = place.f_back
        return False


def uses_compiler() -> bool:
    """Whether torch.compile was called in this process. Importing it does not count."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(frames, "cached_backends", None) or {}
    return any(backend is not None for backend in tuple(backends.values()))


def is_being_compiled() -> bool:
    """Whether torch.compile is tracing the caller."""
    import torch

    return torch.compiler.is_compiling()


def _quiet_compiler() -> None:
    """Suppress the compiler's warning about the global hook, which is soon removed."""
    message = re.compile("Using `torch.compile.module.` when there are global hooks", re.I)
    entry = ("ignore", message, UserWarning, None, 0)
    if entry not in warnings.filters:
        warnings.filterwarnings("ignore", message.pattern, UserWarning)


def _call_code() -> object:
    modules = sys.modules.get("torch.nn.modules.module")
    call = getattr(getattr(modules, "Module", None), "_call_impl", None)
    return getattr(call, "__code__", None)
