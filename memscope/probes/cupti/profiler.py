"""Releases CUPTI while torch.profiler runs: only one subscriber can trace kernels."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

MODULE = "torch.autograd.profiler"  # its functions that begin and end a profile
BEGIN, END = "_prepare_profiler", "_disable_profiler"


class ProfilerWatch:
    """Calls ``before`` and ``after`` around each profile, on the program's thread."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._before, self._after = before, after
        self._undo: list[Callable[[], None]] = []

    def begin(self) -> bool:
        """Wrap torch's functions. Returns whether a profile is already running."""
        module = sys.modules.get(MODULE)
        if module is None or not hasattr(module, BEGIN) or not hasattr(module, END):
            return False
        self._wrap(module, BEGIN, self._before, is_before=True)
        self._wrap(module, END, self._after, is_before=False)
        return bool(getattr(module, "_is_profiler_enabled", False))

    def close(self) -> None:
        """Restore torch's own functions."""
        while self._undo:
            self._undo.pop()()

    def _wrap(self, module: Any, name: str, act: Callable[[], None], *, is_before: bool) -> None:
        original = getattr(module, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if is_before:
                _act(act)
            try:
                return original(*args, **kwargs)
            finally:
                if not is_before:
                    _act(act)

        def undo() -> None:
            if getattr(module, name) is call:  # else someone has wrapped it after us
                setattr(module, name, original)

        setattr(module, name, call)
        self._undo.append(undo)


def _act(act: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):  # the program's profile must not fail for it
        act()
