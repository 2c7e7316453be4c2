"""Tells when torch initialises CUDA, without importing or patching anything.

When torch initialises CUDA, it runs what ``torch.cuda._lazy_call`` has queued, on the program's
thread. To queue a call, torch.cuda must be imported: a module finder that finds nothing looks for
it at each import, which costs about 0.1 µs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable


class CudaWatch:
    """A module finder that finds no module and waits for torch.cuda."""

    def __init__(self, on_cuda: Callable[[], object]) -> None:
        self._on_cuda = on_cuda
        self.is_queued = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Queue the call once torch.cuda is imported. Never finds a module."""
        if not self.is_queued and "torch.cuda" in sys.modules:
            self._queue()

    def _queue(self) -> None:
        cuda = sys.modules["torch.cuda"]
        spec = getattr(cuda, "__spec__", None)
        if spec is None or getattr(spec, "_initializing", False):
            return
        self.is_queued = True
        with contextlib.suppress(Exception):
            if getattr(cuda._tls, "is_initializing", False):
                # Called by what is queued: the lock is held that _lazy_call waits for. What is
                # added now still runs, after all else.
                cuda._queued_calls.append((self._call, []))
            else:
                cuda._lazy_call(self._call)

    def _call(self) -> None:
        with contextlib.suppress(Exception):
            self._on_cuda()


def watch_cuda(on_cuda: Callable[[], object]) -> None:
    """Call ``on_cuda`` when torch initialises CUDA in this process or in a fork of it.

    Calls it now if that has happened already.
    """
    watch = CudaWatch(on_cuda)
    watch.find_spec("torch.cuda")
    if not watch.is_queued:
        sys.meta_path.insert(0, watch)
