"""Out-of-memory errors as exceptions on their way out, of whatever library they come from.

Torch's observer sees what torch's own allocator refuses. The rest (cudaMalloc by others, NVML's
assert, cudaMallocAsync, the host) is known by the exception alone, and has no map.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from memscope.events import Kind
from memscope.interop.oom_log.formats.torch import OomMessage
from memscope.interop.oom_log.reader import read_log
from memscope.recorder.active import active_recorder

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

MAX_CHARACTERS = 2000
MAX_CHAIN = 8
_MARK = "__memscope_recorded__"
_AMOUNTS = ("free", "total", "allocated", "reserved", "limit", "active")

_own = threading.local()
_watching: weakref.WeakKeyDictionary[object, Recorder | None] = weakref.WeakKeyDictionary()
_hooks: weakref.WeakKeyDictionary[object, _Hooks] = weakref.WeakKeyDictionary()
_observed: weakref.WeakKeyDictionary[Recorder, set[int]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class MemoryProblem:
    """An exception that says that memory ran out, its text, and what that gives."""

    error: BaseException
    text: str
    message: OomMessage


# -- who records ------------------------------------------------------------------------------


def open_recorders() -> list[Recorder]:
    """Recorders of which a probe watches for this, and the one that is active."""
    found = [recorder for recorder in tuple(_watching.values()) if recorder is not None]
    active = active_recorder()
    if active is not None and active not in found:
        found.append(active)
    return found


def begin_watching(probe: object) -> None:
    """Look at uncaught exceptions from now on, for ``probe``."""
    _watching[probe] = None
    _hooks[probe] = _Hooks()


def bind_recorder(probe: object, recorder: Recorder) -> None:
    """What ``probe`` watches for is recorded by ``recorder``."""
    _watching[probe] = recorder


def end_watching(probe: object) -> None:
    """The program has its hooks back."""
    _watching.pop(probe, None)
    hooks = _hooks.pop(probe, None)
    if hooks is not None:
        hooks.remove()


@contextlib.contextmanager
def recorded_by_caller() -> Iterator[None]:
    """Inside, the caller records what runs out of memory on this thread; nobody else does."""
    before = is_recorded_by_caller()
    _own.is_recording = True
    try:
        yield
    finally:
        _own.is_recording = before


def is_recorded_by_caller() -> bool:
    """Whether this thread is inside ``recorded_by_caller``."""
    return bool(getattr(_own, "is_recording", False))


def note_observed(recorder: Recorder, requested_bytes: int) -> None:
    """Torch's observer has recorded this one; its exception comes later."""
    _observed.setdefault(recorder, set()).add(requested_bytes)


# -- exceptions -------------------------------------------------------------------------------


def record_error(recorder: Recorder, error: BaseException | None) -> None:
    """Record ``error`` where it says that memory ran out, once. Never raises."""
    with contextlib.suppress(Exception):
        problem = None if error is None else find_problem(error)
        if problem is not None:
            record_problem(recorder, problem)


def find_problem(error: BaseException) -> MemoryProblem | None:
    """The first exception of the chain, as a traceback shows it, that memory ran out for."""
    link: BaseException | None = error
    for _ in range(MAX_CHAIN):
        if link is None:
            break
        text = _text(link)
        message = _message(link, text)
        if message is not None:
            return MemoryProblem(link, text, message)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return None


def record_problem(recorder: Recorder, problem: MemoryProblem) -> None:
    """Record it, unless this recorder has it already."""
    paths = getattr(problem.error, _MARK, ())
    path = str(recorder.path)
    if is_recorded_by_caller() or path in paths:
        return
    with contextlib.suppress(Exception):  # an exception without a dict
        setattr(problem.error, _MARK, (*paths, path))
    message = problem.message
    requested = message.requested
    if requested is not None and any(
        abs(size - requested.bytes) <= requested.slack_bytes + 1
        for size in _observed.get(recorder, ())
    ):
        return
    sizes = {name: getattr(message, name) for name in _AMOUNTS}
    amounts = {name: size.bytes for name, size in sizes.items() if size is not None}
    recorder.emit(
        Kind.OOM,
        recorder.open_step,
        bytes=None if requested is None else requested.bytes,
        device=-1 if message.device is None else message.device,
        data={"scope": "engine", "source": "exception", "error": problem.text, **amounts},
    )


def _text(error: BaseException) -> str:
    """Its class and what it says; only texts, since others may be tensors."""
    if isinstance(error, MemoryError):
        said = str(error)
    else:
        said = " ".join(part for part in error.args if type(part) is str)
    name = type(error).__name__
    return f"{name}: {said}"[:MAX_CHARACTERS] if said else name


def _message(error: BaseException, text: str) -> OomMessage | None:
    for found in read_log(io.BytesIO(text.encode(errors="replace"))).found:
        if isinstance(found.message, OomMessage):
            return found.message
    return OomMessage("host") if isinstance(error, MemoryError) else None


# -- uncaught ones ----------------------------------------------------------------------------


class _Hooks:
    """In front of the program's hooks for uncaught exceptions, which do what they did.

    Where another comes to stand in front of them, they stay there and only pass on.
    """

    def __init__(self) -> None:
        self._is_open = True
        self._main, sys.excepthook = sys.excepthook, self._on_main
        self._thread, threading.excepthook = threading.excepthook, self._on_thread

    def remove(self) -> None:
        """Give back what is still ours."""
        self._is_open = False
        if sys.excepthook == self._on_main:
            sys.excepthook = self._main
        if threading.excepthook == self._on_thread:
            threading.excepthook = self._thread

    def _on_main(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self._look(error)
        self._main(kind, error, trace)

    def _on_thread(self, args: threading.ExceptHookArgs) -> None:
        self._look(args.exc_value)
        self._thread(args)

    def _look(self, error: BaseException | None) -> None:
        if error is None or not self._is_open:
            return
        with contextlib.suppress(BaseException):  # code of the error's own may leave as it likes
            problem = find_problem(error)
            if problem is not None:
                for recorder in open_recorders():
                    record_problem(recorder, problem)
