"""Out-of-memory errors that reach us as exceptions, from any library.

Torch's observer sees what torch's own allocator refuses. All others (cudaMalloc by other libraries,
NVML's assert, cudaMallocAsync, the host) are known by their exception alone and have no map.
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
from memscope.interop.oom_log.formats.message import Message, Refusal
from memscope.interop.oom_log.formats.torch_message import TorchKind, TorchMessage
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
    """An out-of-memory exception, its text, and the sizes that the text gives."""

    error: BaseException
    text: str
    message: Message


# -- who records ------------------------------------------------------------------------------


def open_recorders() -> list[Recorder]:
    """Recorders that have an out-of-memory probe, and the active one."""
    found = [recorder for recorder in tuple(_watching.values()) if recorder is not None]
    active = active_recorder()
    if active is not None and active not in found:
        found.append(active)
    return found


def begin_watching(probe: object) -> None:
    """From now on look at uncaught exceptions for ``probe``."""
    _watching[probe] = None
    _hooks[probe] = _Hooks()


def bind_recorder(probe: object, recorder: Recorder) -> None:
    """Have ``recorder`` record the errors that ``probe`` sees."""
    _watching[probe] = recorder


def end_watching(probe: object) -> None:
    """Stop looking, and restore the program's exception hooks."""
    _watching.pop(probe, None)
    hooks = _hooks.pop(probe, None)
    if hooks is not None:
        hooks.remove()


@contextlib.contextmanager
def recorded_by_caller() -> Iterator[None]:
    """Inside, the caller itself records out-of-memory errors of this thread; nobody else does."""
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
    """Torch's observer has recorded an error of this size; its exception follows."""
    _observed.setdefault(recorder, set()).add(requested_bytes)


# -- exceptions -------------------------------------------------------------------------------


def record_error(recorder: Recorder, error: BaseException | None) -> None:
    """Record ``error`` once if it says that memory ran out. Never raises."""
    with contextlib.suppress(Exception):
        problem = None if error is None else find_problem(error)
        if problem is not None:
            record_problem(recorder, problem)


def find_problem(error: BaseException) -> MemoryProblem | None:
    """The first out-of-memory exception of the chain, in the order of a traceback; None if none."""
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
    """Record ``problem``, unless this recorder already has it."""
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
    sizes = {name: getattr(message, name, None) for name in _AMOUNTS}
    amounts = {name: size.bytes for name, size in sizes.items() if size is not None}
    recorder.emit(
        Kind.OOM,
        recorder.open_step,
        bytes=None if requested is None else requested.bytes,
        device=-1 if message.device is None else message.device,
        data={"scope": "engine", "source": "exception", "error": problem.text, **amounts},
    )


def _text(error: BaseException) -> str:
    """Class and text of an exception. Arguments that are not text, like tensors, are left out."""
    if isinstance(error, MemoryError):
        said = str(error)
    else:
        said = " ".join(part for part in error.args if type(part) is str)
    name = type(error).__name__
    return f"{name}: {said}"[:MAX_CHARACTERS] if said else name


def _message(error: BaseException, text: str) -> Message | None:
    for finding in read_log(io.BytesIO(text.encode(errors="replace"))).findings:
        if not isinstance(finding.message, Refusal):
            return finding.message
    return TorchMessage(TorchKind.HOST) if isinstance(error, MemoryError) else None


# -- uncaught ones ----------------------------------------------------------------------------


class _Hooks:
    """Stands before the program's hooks for uncaught exceptions and calls them afterwards.

    If other hooks are set in front of these, these stay in place and only pass on.
    """

    def __init__(self) -> None:
        self._is_open = True
        self._main, sys.excepthook = sys.excepthook, self._on_main
        self._thread, threading.excepthook = threading.excepthook, self._on_thread

    def remove(self) -> None:
        """Restore the hooks that are still ours."""
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
