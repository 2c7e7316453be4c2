"""Memory that libraries other than torch allocate on the device, by library, from CUPTI.

Opt-in. CUPTI writes a record of each allocation. The recorder's thread collects them ten times a
second, so the program's calls never enter Python. Code that is loaded on first use is no
allocation: it is what the process grew by, beyond all records, while modules were loaded.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memscope.facts import Fact
from memscope.probes.cupti.buffers import CuptiAbsent
from memscope.probes.cupti.library import CuptiLibrary, open_library
from memscope.probes.cupti.profiler import ProfilerWatch
from memscope.probes.cupti.reading import CuptiReading
from memscope.probes.nvml.cards import OwnBytes
from memscope.probes.nvml.errors import explain
from memscope.probes.torch.allocator import cuda_torch
from memscope.probes.torch.cuda_watch import watch_cuda

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

FACT_SECONDS = 1.0


class CuptiProbe:
    """Records ``device_malloc`` and ``device_free`` of libraries, and the fact ``cupti.outside.N``.

    It begins when torch initialises CUDA, on the program's thread. While torch.profiler runs, it
    releases CUPTI. The fact ``cupti`` says what is recorded or why nothing is; ``cupti.cost`` what
    it cost.
    """

    name = "cupti"

    def __init__(
        self, open_cupti: Callable[[], CuptiLibrary] = open_library, nvml: Any = None
    ) -> None:
        self._open_cupti = open_cupti
        self._own = OwnBytes(nvml)
        self._cupti: CuptiLibrary | None = None
        self._reading: CuptiReading | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()  # the program's thread gives CUPTI up, ours reads it
        self._profiler = ProfilerWatch(self._pause, self._resume)
        self._said_at = self._paused_at = self._given_up_s = 0.0

    def begin(self, recorder: Recorder) -> None:
        """Wait for CUDA, or start now if torch has initialised it."""
        watch_cuda(lambda: self._start(recorder))

    def __call__(self, recorder: Recorder) -> None:
        reading, cupti = self._reading, self._cupti
        if reading is None or cupti is None:
            return
        try:
            with self._lock:
                if not self._paused_at:
                    reading.collect()
                    reading.read_growth()
        except Exception:  # it is asked no more: the program need not pay for records any longer
            with contextlib.suppress(Exception):
                self.close()
            raise
        now = time.monotonic()
        if recorder.is_closing or now - self._said_at >= FACT_SECONDS:
            self._said_at = now
            reading.say(self._state(cupti))

    def close(self) -> None:
        """Release CUPTI and torch's functions. A forked child has no CUPTI to release."""
        self._profiler.close()
        reading, self._reading = self._reading, None
        if reading is not None and self._cupti is not None and os.getpid() == self._pid:
            with self._lock:
                if not self._paused_at:
                    self._cupti.pause()

    def _start(self, recorder: Recorder) -> None:
        """On the program's thread. A failure becomes a fact."""
        if recorder.is_closing or self._reading is not None:
            return
        before = self._read_own()
        try:
            self._cupti = self._open_cupti()
            if self._profiler.begin():
                raise CuptiAbsent("torch.profiler is running", "Begin to record before it.")
            self._cupti.start()
        except Exception as error:
            self._profiler.close()
            problem = error.problem if isinstance(error, CuptiAbsent) else explain(error)
            recorder.fact(Fact.CUPTI, {"absent": problem.reason, "fix": problem.fix})
            return
        after = self._read_own()
        taken = {device: max(after.get(device, 0) - size, 0) for device, size in before.items()}
        self._reading = CuptiReading(recorder, self._cupti, self._own, taken)

    def _read_own(self) -> dict[int, int]:
        """Bytes of this process on each device where it has a context."""
        torch = cuda_torch()
        if torch is None:
            return {}
        sizes = {each: self._own.try_read(torch, each) for each in range(torch.cuda.device_count())}
        return {device: size for device, size in sizes.items() if size is not None}

    def _state(self, cupti: CuptiLibrary) -> dict[str, object]:
        return {
            "version": cupti.version,
            "library": cupti.path,
            "names_libraries": cupti.names_libraries,
            "marks_modules": cupti.marks_modules,
            "given_up_s": round(self._given_up_s + self._pause_s, 3),
        }

    @property
    def _pause_s(self) -> float:
        """Duration of the present pause, which may last to the end."""
        return time.monotonic() - self._paused_at if self._paused_at else 0.0

    def _pause(self) -> None:
        with self._lock:
            if self._reading is not None and self._cupti is not None and not self._paused_at:
                self._paused_at = time.monotonic()
                self._cupti.pause()

    def _resume(self) -> None:
        with self._lock:
            if self._reading is not None and self._cupti is not None and self._paused_at:
                self._cupti.resume()
                self._given_up_s += self._pause_s
                self._paused_at = 0.0
