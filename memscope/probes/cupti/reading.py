"""Turns CUPTI's records into events and facts, on the recorder's thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memscope.events import Kind
from memscope.facts import DeviceFact, Fact
from memscope.probes.cupti.library import CuptiLibrary
from memscope.probes.cupti.outside import Outside, Ranges
from memscope.probes.cupti.records import Allocation
from memscope.probes.nvml.cards import OwnBytes
from memscope.probes.pace import TimePace
from memscope.probes.torch.allocator import cuda_torch, read_counters
from memscope.probes.torch.allocator_map import without_inductor

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

GROWTH_SHARE = 0.01  # of the time, for readings of what the process holds


@dataclass(slots=True)
class Growth:
    """What a process holds that no call accounts for, and how it grew while code was loaded.

    ``base_bytes``: at the first reading, the context and what the driver had loaded by then.
    """

    base_bytes: int | None = None
    modules_bytes: int = 0
    _last_bytes: int = 0
    _last_loads: int = 0

    def add(self, unaccounted_bytes: int, loads_before: int, loads_after: int) -> int:
        """Add a reading and the number of loads before and after it; the bytes that code took.

        Growth without any load stays unexplained.
        """
        grown = 0
        if self.base_bytes is None:
            self.base_bytes = unaccounted_bytes
        elif loads_after > self._last_loads:
            before = self.modules_bytes
            self.modules_bytes = max(before + unaccounted_bytes - self._last_bytes, 0)
            grown = self.modules_bytes - before
        self._last_bytes, self._last_loads = unaccounted_bytes, loads_before
        return grown


class CuptiReading:
    """Records calls of libraries as rows, and what they hold as facts.

    ``taken_bytes``: what CUPTI itself took on each device that already had a context.
    """

    def __init__(
        self, recorder: Recorder, cupti: CuptiLibrary, own: OwnBytes, taken_bytes: dict[int, int]
    ) -> None:
        self._recorder, self._cupti = recorder, cupti
        self._own, self._taken_bytes = own, taken_bytes
        self._outside = Outside(torch_ranges)
        self._growth: dict[int, Growth] = {}
        self._pace = TimePace(GROWTH_SHARE)
        self._said: dict[str, object] = {}
        self._records = self._read_ns = 0

    def collect(self) -> int:
        """Record the calls since the last time. Returns their number, with torch's."""
        clock = self._recorder.clock
        start = clock()
        calls = self._cupti.drain()
        shift = clock() - self._cupti.now_ns()
        for call, library in self._outside.add(calls):
            self._emit(call, library, call.t_ns + shift)
        self._records += len(calls)
        self._read_ns += clock() - start
        return len(calls)

    def read_growth(self) -> None:
        """Read what no call accounts for on each device, as often as its cost allows."""
        torch, start = cuda_torch(), self._recorder.clock()
        if torch is None or not (self._pace.is_due(start) or self._recorder.is_closing):
            return
        for device in range(torch.cuda.device_count()):
            self._read_device(torch, device)
        end = self._recorder.clock()
        self._pace.end_read(end, end - start)

    def say(self, state: dict[str, object]) -> None:
        """Record what is held now, and ``state`` as the fact ``cupti``, if they have changed."""
        said = {
            DeviceFact.OUTSIDE_TORCH.of(device): self._describe(device)
            for device in sorted({*self._growth, *self._outside.devices})
        }
        for key, data in {**said, Fact.CUPTI: state}.items():
            if data != self._said.get(key):
                self._said[key] = data
                self._recorder.fact(key, data)
        cost = {"records": self._records, "read_ns": self._read_ns}
        self._recorder.fact(Fact.CUPTI_COST, self._cupti.cost() | cost)

    def _read_device(self, torch: Any, device: int) -> None:
        """Take a reading, if neither torch nor a library made a call meanwhile."""
        reserved = read_counters(torch, device)["reserved_bytes"]
        if not reserved and device not in self._outside.devices:
            return
        loads = self._loads
        held = self._own.try_read(torch, device)
        if self.collect() or held is None:
            return
        if read_counters(torch, device)["reserved_bytes"] != reserved:
            return
        growth = self._growth.setdefault(device, Growth())
        left = held - reserved - self._outside.held_bytes(device)
        grown = growth.add(left, loads, self._loads)
        if grown > 0:
            self._recorder.emit(Kind.MODULE_LOAD, name="code", bytes=grown, device=device)

    @property
    def _loads(self) -> int:
        """Number of signs of loaded code: CUPTI's callback, and arrays that come with code."""
        return self._cupti.module_loads + self._cupti.code_arrays

    def _describe(self, device: int) -> dict[str, object]:
        outside, growth = self._outside, self._growth.get(device)
        libraries = outside.libraries(device)
        found: dict[str, object] = {
            "libraries_bytes": sum(libraries.values()),
            "libraries": libraries,
            "calls": outside.calls(device),
            "pools_bytes": outside.pool_bytes(device),
            "pools": outside.pool_users(device),
        }
        taken = self._taken_bytes.get(device, None if self._cupti.is_preallocating else 0)
        if taken is not None:
            found["cupti_bytes"] = taken
        if growth is not None:
            found["base_bytes"] = growth.base_bytes
            found["modules_bytes"] = growth.modules_bytes
        return found

    def _emit(self, call: Allocation, library: str, at_ns: int) -> None:
        self._recorder.emit(
            Kind.DEVICE_FREE if call.is_release else Kind.DEVICE_MALLOC,
            name=library,
            bytes=call.bytes,
            address=call.address,
            device=call.device,
            stream=call.stream,
            at_ns=at_ns,
        )


def torch_ranges() -> Ranges:
    """Addresses that torch's allocator holds, as (start, end)."""
    torch = cuda_torch()
    if torch is None:
        return []
    with without_inductor():
        try:
            segments = torch.cuda.memory_snapshot(include_traces=False)
        except TypeError:  # an older torch
            segments = torch.cuda.memory_snapshot()
    return [(each["address"], each["address"] + each["total_size"]) for each in segments]
