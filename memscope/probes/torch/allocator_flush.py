"""Calls of ``torch.cuda.empty_cache()``: caller, duration, bytes returned to the driver.

The function below it is wrapped, so names imported earlier are seen too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from memscope.events import Kind
from memscope.facts import probe_fact
from memscope.probes.torch.allocator import cuda_torch, read_counters

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

# Where torch flushes from, in the module torch._C; not every version has the second.
_FUNCTIONS = ("_cuda_emptyCache", "_accelerator_emptyCache")
CAPTURE = "graph capture"
CALL = "empty_cache"


class FlushProbe:
    """Records an ``allocator_flush`` for each call. ``close`` removes the wrapper.

    A flush that torch makes before it captures a graph is named "graph capture".
    """

    name = "allocator_flush"

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._is_watching = False

    def __call__(self, recorder: Recorder) -> None:
        """Wrap torch's functions, once the program has imported torch."""
        library = getattr(sys.modules.get("torch"), "_C", None)
        if self._is_watching or library is None:
            return
        names = [name for name in _FUNCTIONS if hasattr(library, name)]
        if not names:
            return  # still being imported, or built without CUDA
        self._is_watching = True
        for name in names:
            self._wrap(library, name, recorder)
        recorder.fact(probe_fact("allocator_flush"), {"watches": "torch.cuda.empty_cache()"})

    def close(self) -> None:
        """Restore torch's own functions."""
        while self._undo:
            self._undo.pop()()

    def _wrap(self, library: Any, name: str, recorder: Recorder) -> None:
        original = getattr(library, name)

        def flush(*args: Any, **kwargs: Any) -> Any:
            return record_flush(recorder, lambda: original(*args, **kwargs))

        def undo() -> None:
            if getattr(library, name) is flush:  # else someone has wrapped it after us
                setattr(library, name, original)

        setattr(library, name, flush)
        self._undo.append(undo)


def record_flush(recorder: Recorder, flush: Callable[[], Any]) -> Any:
    """Call ``flush`` and record it. A fault in recording does not affect the flush."""
    torch = cuda_torch()
    if torch is None:
        return flush()
    before = _reserved_bytes(torch)
    start_ns = recorder.clock()
    result = flush()
    duration_ns = recorder.clock() - start_ns
    with contextlib.suppress(Exception):  # the program's flush must not fail for it
        caller, is_capture = find_caller(sys._getframe(1), _folder(torch))
        recorder.emit(
            Kind.ALLOCATOR_FLUSH,
            recorder.open_step,
            name=CAPTURE if is_capture else CALL,
            bytes=max(before - _reserved_bytes(torch), 0),
            duration_ns=duration_ns,
            data={"caller": caller},
        )
    return result


def find_caller(frame: FrameType | None, library: str) -> tuple[str, bool]:
    """The first frame outside ``library`` as "file:line in function", and whether it is graph
    capture.

    torch.cuda.graph empties the cache before it captures a graph.
    """
    is_capture = False
    while frame is not None:
        path, function = frame.f_code.co_filename, frame.f_code.co_name
        if path.startswith(library):
            is_capture = is_capture or os.path.basename(path) == "graphs.py"
        elif path != __file__:
            return f"{path}:{frame.f_lineno} in {function}", is_capture
        frame = frame.f_back
    return "unknown", is_capture


def _folder(torch: Any) -> str:
    return os.path.join(os.path.dirname(torch.__file__), "")


def _reserved_bytes(torch: Any) -> int:
    try:
        return sum(
            read_counters(torch, device)["reserved_bytes"]
            for device in range(torch.cuda.device_count())
        )
    except Exception:  # as above
        return 0
