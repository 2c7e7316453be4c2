"""Memory that libraries other than torch take on the device, by name, as CUPTI tells it.

Opt-in. CUPTI writes a record of each allocation; the recorder's thread collects them ten times a
second, so that no call of the program enters Python. Code that is loaded on first use is in no
allocation: it is what the process grew by, beyond all records, while modules were loaded.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from memscope import events
from memscope.launch.cuda_watch import watch_cuda
from memscope.probes.allocator import cuda_torch, read_counters
from memscope.probes.cards import OwnBytes
from memscope.probes.cupti_buffers import CuptiAbsent
from memscope.probes.cupti_growth import Growth
from memscope.probes.cupti_library import CuptiLibrary, open_library
from memscope.probes.cupti_outside import Outside, Ranges
from memscope.probes.cupti_profiler import ProfilerWatch
from memscope.probes.cupti_records import Allocation
from memscope.probes.nvml_errors import explain
from memscope.probes.pace import TimePace
from memscope.writer import Recorder

FACT_SECONDS = 1.0
GROWTH_SHARE = 0.01  # of the time, for readings of what the process holds


class CuptiProbe:
    """Records ``device_malloc`` and ``device_free`` of libraries, and the fact ``cupti.outside.N``.

    It begins once torch initialises CUDA, on the program's thread; while torch.profiler runs, it
    leaves CUPTI to that. The fact ``cupti`` says what it has or why it is absent, ``cupti.cost``
    what it cost.
    """

    name = "cupti"

    def __init__(
        self, open_cupti: Callable[[], CuptiLibrary] = open_library, nvml: Any = None
    ) -> None:
        self._open_cupti = open_cupti
        self._own = OwnBytes(nvml)
        self._cupti: CuptiLibrary | None = None
        self._is_on = False
        self._pid = os.getpid()
        self._lock = threading.Lock()  # the program's thread gives CUPTI up, ours reads it
        self._outside = Outside(torch_ranges)
        self._growth: dict[int, Growth] = {}
        self._pace = TimePace(GROWTH_SHARE)
        self._profiler = ProfilerWatch(self._pause, self._resume)
        self._own_bytes: dict[int, int | None] = {}
        self._fact: dict[str, object] = {}
        self._said: dict[str, object] = {}
        self._said_at = 0.0
        self._records = self._read_ns = 0
        self._paused_at = 0.0
        self._gaps_s = 0.0

    def begin(self, recorder: Recorder) -> None:
        """Wait for CUDA, which torch may have initialised already."""
        watch_cuda(lambda: self._start(recorder))

    def __call__(self, recorder: Recorder) -> None:
        if not self._is_on or self._cupti is None:
            return
        with self._lock:
            if not self._paused_at:
                self._collect(recorder, self._cupti)
                self._read_growth(recorder, self._cupti)
        now = time.monotonic()
        if recorder.is_closing or now - self._said_at >= FACT_SECONDS:
            self._said_at = now
            self._say(recorder, self._cupti)

    def close(self) -> None:
        """Let go of CUPTI and of torch's functions; a forked child has none of it."""
        self._profiler.close()
        is_on, self._is_on = self._is_on, False
        if is_on and self._cupti is not None and os.getpid() == self._pid:
            with self._lock:
                if not self._paused_at:
                    self._cupti.pause()

    # -- the program's thread -----------------------------------------------------------------

    def _start(self, recorder: Recorder) -> None:
        if recorder.is_closing or self._is_on:
            return
        before = self._read_own_bytes()
        try:
            self._cupti = self._open_cupti()
            if self._profiler.begin():
                raise CuptiAbsent("torch.profiler is running", "Begin to record before it.")
            self._cupti.start()
        except Exception as error:  # an OSError, say: the reason is all that counts
            self._profiler.close()
            problem = error.problem if isinstance(error, CuptiAbsent) else explain(error)
            recorder.fact("cupti", {"absent": problem.reason, "fix": problem.fix})
            return
        self._own_bytes = _differences(before, self._read_own_bytes())
        self._fact = {
            "version": self._cupti.version,
            "library": self._cupti.path,
            "names_libraries": self._cupti.names_libraries,
            "marks_modules": self._cupti.marks_modules,
        }
        recorder.fact("cupti", self._fact)
        self._is_on = True

    def _read_own_bytes(self) -> dict[int, int]:
        """What the process holds on each device that it has a context on."""
        torch = cuda_torch()
        if torch is None:
            return {}
        sizes = {each: self._read_own(torch, each) for each in range(torch.cuda.device_count())}
        return {device: size for device, size in sizes.items() if size is not None}

    def _read_own(self, torch: Any, device: int) -> int | None:
        try:
            return self._own.read(torch, device)
        except Exception:  # NVML is absent or refuses: its own probe says why
            return None

    def _pause(self) -> None:
        with self._lock:
            if self._is_on and self._cupti is not None and not self._paused_at:
                self._paused_at = time.monotonic()
                self._cupti.pause()

    def _resume(self) -> None:
        with self._lock:
            if self._is_on and self._cupti is not None and self._paused_at:
                self._gaps_s += time.monotonic() - self._paused_at
                self._cupti.resume()
                self._paused_at = 0.0

    # -- the recorder's thread ----------------------------------------------------------------

    def _collect(self, recorder: Recorder, cupti: CuptiLibrary) -> int:
        """Record what was called since the last time; the number of calls, torch's included."""
        start = recorder.clock()
        calls = cupti.drain()
        shift = recorder.clock() - cupti.now_ns()
        for call, library in self._outside.add(calls):
            _emit(recorder, call, library, call.t_ns + shift)
        self._records += len(calls)
        self._read_ns += recorder.clock() - start
        return len(calls)

    def _read_growth(self, recorder: Recorder, cupti: CuptiLibrary) -> None:
        """What no call accounts for on each device; not where a call came in between."""
        torch, start = cuda_torch(), recorder.clock()
        if torch is None or not (self._pace.is_due(start) or recorder.is_closing):
            return
        for device in range(torch.cuda.device_count()):
            reserved = read_counters(torch, device)["reserved_bytes"]
            if not reserved and device not in self._outside.devices:
                continue
            loads = self._loads(cupti)
            held = self._read_own(torch, device)
            if self._collect(recorder, cupti) or held is None:
                continue
            if read_counters(torch, device)["reserved_bytes"] != reserved:
                continue
            growth = self._growth.setdefault(device, Growth())
            left = held - reserved - self._outside.held_bytes(device)
            grown = growth.add(left, loads, self._loads(cupti))
            if grown > 0:
                recorder.emit(events.MODULE_LOAD, name="code", bytes=grown, device=device)
        self._pace.end_read(start, recorder.clock())

    def _loads(self, cupti: CuptiLibrary) -> int:
        """Signs of loaded code: CUPTI's callback, and the arrays that came with it."""
        return cupti.module_loads + cupti.code_arrays

    def _say(self, recorder: Recorder, cupti: CuptiLibrary) -> None:
        """What is held now, where it is not what was said before."""
        said: dict[str, object] = {
            f"cupti.outside.{device}": self._describe(device, cupti)
            for device in sorted({*self._growth, *self._outside.devices})
        }
        said["cupti"] = self._fact | {
            "marks_modules": cupti.marks_modules,
            "given_up_s": round(self._gaps_s, 3),
        }
        for key, data in said.items():
            if data != self._said.get(key):
                recorder.fact(key, data)
        self._said = said
        cost = {"records": self._records, "read_ns": self._read_ns}
        recorder.fact("cupti.cost", cupti.cost() | cost)

    def _describe(self, device: int, cupti: CuptiLibrary) -> dict[str, object]:
        outside, growth = self._outside, self._growth.get(device)
        libraries = outside.libraries(device)
        found: dict[str, object] = {
            "libraries_bytes": sum(libraries.values()),
            "libraries": libraries,
            "calls": outside.calls(device),
            "pools_bytes": outside.pool_bytes(device),
            "pools": outside.pool_users(device),
        }
        taken = self._own_bytes.get(device, None if cupti.is_preallocating else 0)
        if taken is not None:
            found["cupti_bytes"] = taken
        if growth is not None:
            found["base_bytes"] = growth.base_bytes
            found["modules_bytes"] = growth.modules_bytes
        return found


def torch_ranges() -> Ranges:
    """Addresses that torch's allocator holds, as (start, end)."""
    torch = cuda_torch()
    if torch is None:
        return []
    try:
        segments = torch.cuda.memory_snapshot(include_traces=False)
    except TypeError:  # before torch 2.8
        segments = torch.cuda.memory_snapshot()
    return [(each["address"], each["address"] + each["total_size"]) for each in segments]


def _emit(recorder: Recorder, call: Allocation, library: str, at_ns: int) -> None:
    recorder.emit(
        events.DEVICE_FREE if call.is_release else events.DEVICE_MALLOC,
        name=library,
        bytes=call.bytes,
        address=call.address,
        device=call.device,
        stream=call.stream,
        at_ns=at_ns,
    )


def _differences(before: dict[int, int], after: dict[int, int]) -> dict[int, int | None]:
    """What CUPTI took of each device that had a context before."""
    return {device: max(after.get(device, 0) - size, 0) for device, size in before.items()}
