"""Which recorder ``memscope.active_recorder()`` returns. Loads neither numpy nor pyarrow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

_active: list[Recorder] = []
_open_own: Callable[[], Recorder | None] | None = None


def active_recorder() -> Recorder | None:
    """The innermost recorder that is open as a context, else the process's own, or None.

    A process has one of its own under ``memscope run``, or if MEMSCOPE_RECORD is set.
    """
    if _active:
        return _active[-1]
    return _open_own() if _open_own is not None else None


def push_active(recorder: Recorder) -> None:
    """Let ``active_recorder`` return ``recorder`` until it is removed."""
    _active.append(recorder)


def remove_active(recorder: Recorder) -> None:
    """``active_recorder`` no longer returns ``recorder``. Nothing happens if it did not."""
    with contextlib.suppress(ValueError):
        _active.remove(recorder)


def make_default(recorder: Recorder) -> None:
    """Let ``active_recorder`` return ``recorder`` if no other is open as a context."""
    _active.insert(0, recorder)


def set_own_recorder(open_own: Callable[[], Recorder | None]) -> None:
    """Call ``open_own`` for the process's own recorder, which opens it on request."""
    global _open_own
    _open_own = open_own
