"""SIGUSR2 pins what is being recorded, where the program does not use the signal itself."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

NAME = "SIGUSR2"


class PinSignal:
    """Calls ``mark`` at SIGUSR2 until it is restored; where the signal is in use, never."""

    def __init__(self, mark: Callable[[str], None]) -> None:
        self._mark = mark
        self._handler = self._handle  # one object: what is ours is told by identity
        self._is_set = False
        if threading.current_thread() is threading.main_thread() and _is_unused():
            with contextlib.suppress(ValueError, OSError):
                signal.signal(signal.SIGUSR2, self._handler)
                self._is_set = True

    def restore(self) -> None:
        """Leave the signal as it was, unless the program has taken it meanwhile.

        Only the main thread may; after a call on another one the next signal does it.
        """
        was_set, self._is_set = self._is_set, False
        if not was_set or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGUSR2) is self._handler:
            signal.signal(signal.SIGUSR2, signal.SIG_DFL)

    def _handle(self, *_: object) -> None:
        if self._is_set:
            self._mark(NAME)
            return
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGUSR2)


def _is_unused() -> bool:
    """Whether neither Python nor C code (faulthandler, say) handles or ignores it."""
    number = getattr(signal, NAME, None)
    if number is None or signal.getsignal(number) is not signal.SIG_DFL:
        return False
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigCgt:", "SigIgn:"))]
    return bool(masks) and not any(mask >> number - 1 & 1 for mask in masks)
