"""Out-of-memory errors of torch's allocator, from its observer: counters, then the map.

Since torch 2.1 the observer is called without the allocator's lock, on the allocating thread,
before the exception is made (CUDACachingAllocator.cpp). So it can read without waiting for itself.
An exception in it would replace the program's. It cannot be detached, so one observer serves all
recorders of a process.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any

from memscope.events import Kind
from memscope.facts import Fact, probe_fact
from memscope.probes.torch.allocator import cuda_torch, read_counters, sample_counters
from memscope.probes.torch.allocator_map import MAX_BLOCKS, MAX_FRAMES, emit_map, read_map
from memscope.probes.torch.cuda_watch import watch_cuda
from memscope.probes.torch.history import start_history, stop_history
from memscope.recorder.memory_errors import (
    begin_watching,
    bind_recorder,
    end_watching,
    is_recorded_by_caller,
    note_observed,
    open_recorders,
    recorded_by_caller,
)

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

FLUSH_SECONDS = 1.0
MOST_BLOCKS = 5 * MAX_BLOCKS
_FIRST_WITHOUT_LOCK = (2, 1)
_COUNTERS = (
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "requested_bytes",
    "inactive_split_bytes",
)

_attaching = threading.RLock()
_attached: dict[int, str | None] = {}  # by id of torch's library: None, or why it cannot be
_mapping = threading.Lock()
_mapped: weakref.WeakSet[Recorder] = weakref.WeakSet()


class OomProbe:
    """Records ``oom`` for each error with counters, and the allocator's map for the first.

    ``history``: number of events that torch keeps, with who allocated each block; 0 for none.
    """

    name = "oom"

    def __init__(self, history: int = 0) -> None:
        self._history, self._pid = history, os.getpid()
        self._is_open, self._has_begun, self._has_said = True, False, False
        self._no_owners: str | None = "--history was off" if not history else None
        begin_watching(self)
        watch_cuda(self._begin)

    def __call__(self, recorder: Recorder) -> None:
        """Bind the recorder, and attach the observer if torch has CUDA by now."""
        if self._has_said:
            return
        bind_recorder(self, recorder)
        torch = cuda_torch()
        if torch is None:
            return
        self._begin()
        self._has_said = True
        recorder.fact(probe_fact("oom"), self._facts(torch))

    def close(self) -> None:
        """Restore the program's hooks. The observer stays and does nothing."""
        self._is_open = False
        end_watching(self)
        is_on = self._has_begun and bool(self._history) and self._no_owners is None
        if is_on and os.getpid() == self._pid:  # a fork may have left the allocator locked
            stop_history(sys.modules.get("torch"))

    def _begin(self) -> None:
        """Torch has CUDA now: attach the observer."""
        with _attaching:
            if self._has_begun or not self._is_open:
                return
            self._has_begun = True
            torch = sys.modules["torch"]
            attach_observer(torch)
            if self._history:
                self._no_owners = start_history(torch, self._history)

    def _facts(self, torch: Any) -> dict[str, object]:
        reason = _attached.get(id(torch._C), "not attached")
        seen = (
            {"watches": "torch's out-of-memory observer"} if reason is None else {"absent": reason}
        )
        owners = {"owners": self._no_owners} if self._no_owners else {"history": self._history}
        return {**seen, **owners}


def attach_observer(torch: Any) -> None:
    """Attach our observer to torch's allocator, once per process. CUDA must be initialised."""
    with _attaching:
        if id(torch._C) in _attached:
            return
        try:
            _attached[id(torch._C)] = _attach(torch)
        except Exception as error:  # cudaMallocAsync and plugged-in allocators have none
            _attached[id(torch._C)] = f"{type(error).__name__}: {str(error).splitlines()[0]}"


def _attach(torch: Any) -> str | None:
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is None:
        return "this torch has no observer"
    version = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    if version and (int(version[1]), int(version[2])) < _FIRST_WITHOUT_LOCK:
        return "this torch calls observers with its allocator locked"
    attach(on_out_of_memory)
    return None


def on_out_of_memory(device: int, requested: int, usable: int, free: int) -> None:
    """Called by torch. ``requested``: bytes asked of the driver. Never raises.

    ``usable``: size of the card, or the memory fraction if one is set.
    """
    if is_recorded_by_caller():
        return
    with contextlib.suppress(Exception), recorded_by_caller():  # nor calls itself
        torch = sys.modules["torch"]
        amounts = _amounts(torch, device, usable, free)
        for recorder in open_recorders():
            with contextlib.suppress(Exception):
                _record(recorder, torch, device, requested, amounts)


def _record(
    recorder: Recorder, torch: Any, device: int, requested: int, amounts: dict[str, Any]
) -> None:
    at_ns = recorder.clock()
    recorder.emit(
        Kind.OOM,
        recorder.open_step,
        bytes=requested,
        device=device,
        stream=amounts.get("stream", -1),
        data=amounts,
        at_ns=at_ns,
    )
    note_observed(recorder, requested)
    sample_counters(recorder, read_counters(torch, device), device)
    if recorder not in _mapped and _mapping.acquire(blocking=False):
        try:
            _mapped.add(recorder)
            _record_map(recorder, torch, device, at_ns)
        finally:
            _mapping.release()
    recorder.flush(FLUSH_SECONDS)


def _record_map(recorder: Recorder, torch: Any, device: int, at_ns: int) -> None:
    try:
        active = torch._C._cuda_memoryStats(device).get("active", {}).get("all", {})
        if active.get("current", 0) > MOST_BLOCKS:  # torch would be at it for seconds
            recorder.fact(
                Fact.MAP, {"device": device, "reason": f"more than {MOST_BLOCKS:,} blocks"}
            )
            return
        snapshot = read_map(torch)
        version = str(torch.__version__)
        emit_map(recorder, snapshot, device=device, at_ns=at_ns, torch_version=version)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        recorder.fact(Fact.MAP, {"device": device, "reason": reason})


def _amounts(torch: Any, device: int, usable: int, free: int) -> dict[str, Any]:
    """Data of the row: bytes, counts, the stream, and the frames that allocated."""
    amounts: dict[str, Any] = {"scope": "engine", "source": "observer", "device": device}
    amounts["free"] = free
    with contextlib.suppress(Exception):
        counters = read_counters(torch, device)
        amounts |= {name.removesuffix("_bytes"): counters[name] for name in _COUNTERS}
        amounts |= {name: counters[name] for name in ("alloc_retries", "ooms") if name in counters}
    amounts |= _card(torch, device, usable)
    with contextlib.suppress(Exception):  # a look into a table: no call of CUDA
        amounts["stream"] = int(torch._C._cuda_getCurrentRawStream(device))
    amounts["frames"] = _frames(sys._getframe(1))
    return amounts


def _card(torch: Any, device: int, usable: int) -> dict[str, int]:
    """Size of the card, and the limit if torch may not use all of it.

    Torch has read the properties of all devices when it initialised CUDA; this reads its table.
    """
    total = usable
    with contextlib.suppress(Exception):
        total = int(torch.cuda.get_device_properties(device).total_memory)
    return {"total": total, "limit": usable} if usable < total else {"total": usable}


def _frames(frame: FrameType | None) -> list[str]:
    """The program's own frames of this thread, innermost first."""
    lines: list[str] = []
    while frame is not None and len(lines) < MAX_FRAMES:
        code = frame.f_code
        if code.co_filename != __file__:
            lines.append(f"{code.co_name} ({code.co_filename}:{frame.f_lineno})")
        frame = frame.f_back
    return lines
