"""How recorders follow their process: as it forks, as it ends, and at SIGUSR2.

SIGUSR2 pins the events of the last seconds, if the program does not use the signal itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

EXIT_SECONDS = 0.05
PIN_SIGNAL = "SIGUSR2"

open_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def await_exit(thread_id: int | None) -> None:
    """Wait until the system has ended a thread: Python 3.12 warns of threads at a fork."""
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


class PinSignal:
    """Calls ``mark`` at SIGUSR2 until it is restored; never if the program uses the signal."""

    def __init__(self, mark: Callable[[str], None]) -> None:
        self._mark = mark
        self._handler = self._handle  # one object: what is ours is told by identity
        self._is_set = False
        if threading.current_thread() is threading.main_thread() and _is_unused():
            with contextlib.suppress(ValueError, OSError):
                signal.signal(signal.SIGUSR2, self._handler)
                self._is_set = True

    def restore(self) -> None:
        """Leave the signal as it was, unless the program has set a handler meanwhile.

        Only the main thread may do that. After a call on another thread the next signal does it.
        """
        was_set, self._is_set = self._is_set, False
        if not was_set or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGUSR2) is self._handler:
            signal.signal(signal.SIGUSR2, signal.SIG_DFL)

    def _handle(self, *_: object) -> None:
        if self._is_set:
            self._mark(PIN_SIGNAL)
            return
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGUSR2)


def _is_unused() -> bool:
    """Whether neither Python nor C code (faulthandler, say) handles or ignores it."""
    number = getattr(signal, PIN_SIGNAL, None)
    if number is None or signal.getsignal(number) is not signal.SIG_DFL:
        return False
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigCgt:", "SigIgn:"))]
    return bool(masks) and not any(mask >> number - 1 & 1 for mask in masks)


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_pause_all, after_in_parent=_resume_all, after_in_child=_leave_in_child
    )
