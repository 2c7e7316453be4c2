"""The recorders of this process, as it forks and as it ends."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

EXIT_SECONDS = 0.05

open_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def await_exit(thread_id: int | None) -> None:
    """Until the system has let go of a thread, too: Python 3.12 counts those there at a fork."""
    deadline = time.monotonic() + EXIT_SECONDS
    while os.path.exists(f"/proc/self/task/{thread_id}") and time.monotonic() < deadline:
        time.sleep(0.0001)


def _close_all() -> None:
    for recorder in tuple(open_recorders):
        recorder.close()


def _pause_all() -> None:
    for recorder in tuple(open_recorders):
        recorder.pause()


def _resume_all() -> None:
    for recorder in tuple(open_recorders):
        recorder.resume()


def _leave_in_child() -> None:
    for recorder in tuple(open_recorders):
        recorder.leave_in_child()
    open_recorders.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_pause_all, after_in_parent=_resume_all, after_in_child=_leave_in_child
    )
