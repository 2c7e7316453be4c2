"""Stand-ins for tests: a recorder that keeps its rows in a list, NVML and torch's counters."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from memscope.events import Kind

TOTAL_BYTES = 1000 << 20


@dataclass(frozen=True)
class Row:
    """One event as it was emitted."""

    kind: int
    step: int = -1
    layer: int = -1
    name: str | None = None
    bytes: int | None = None
    duration_ns: int | None = None
    value: float | None = None
    data: Any = None
    address: int | None = None
    device: int = -1
    stream: int = -1
    request: int = -1
    at_ns: int | None = None
    t_ns: int = 0


class ListRecorder:
    """Takes what a Recorder takes and keeps it in `rows`, in the order of emission."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.clock = time.perf_counter_ns
        self.open_step = -1
        self.is_closing = False

    def emit(self, kind: int, step: int = -1, layer: int = -1, **fields: Any) -> None:
        t_ns = fields.get("at_ns") or self.clock()
        self.rows.append(Row(kind, step, layer, **fields, t_ns=t_ns))

    def fact(self, key: str, data: object) -> None:
        self.emit(Kind.FACT, name=key, data=data)

    def sample(
        self,
        name: str,
        *,
        bytes: int | None = None,
        value: float | None = None,
        step: int = -1,
        layer: int = -1,
        device: int = -1,
    ) -> None:
        fields = {"name": name, "bytes": bytes, "value": value, "device": device}
        self.emit(Kind.SAMPLE, step, layer, **fields)

    def of(self, *kinds: int) -> Iterator[Row]:
        """The rows of these kinds."""
        return (row for row in self.rows if row.kind in kinds)

    def count(self, *kinds: int, step: int | None = None) -> int:
        """How many rows of these kinds there are, in one step or in all."""
        return sum(step is None or row.step == step for row in self.of(*kinds))


class FakeNvmlError(Exception):
    """As pynvml raises it."""


@dataclass(frozen=True)
class DriverProfile:
    """What one kind of driver answers. `process_bytes` None: it lists the process without."""

    has_version_2: bool = True
    process_bytes: int | None = 600
    is_pid_known: bool = True
    can_start: bool = True
    lists_processes: bool = True


MODERN = DriverProfile()
OLD = DriverProfile(has_version_2=False)
CONTAINER = DriverProfile(is_pid_known=False)
WINDOWS_MODEL = DriverProfile(process_bytes=None)
NO_DRIVER = DriverProfile(can_start=False)
NO_PERMISSION = DriverProfile(lists_processes=False)


class FakeNvml:
    """The module pynvml over one made-up card; sizes are small numbers."""

    nvmlMemory_v2 = 33554472

    def __init__(self, profile: DriverProfile, uuid: str = "GPU-0a") -> None:
        self.profile = profile
        self.uuid = uuid
        self.used = 650
        self.calls: list[str] = []

    def nvmlInit(self) -> None:
        if not self.profile.can_start:
            raise FakeNvmlError("Driver Not Loaded")

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != self.uuid:
            raise FakeNvmlError("Not Found")
        return "card"

    def nvmlDeviceGetMemoryInfo(self, card: str, version: int | None = None) -> Any:
        self.calls.append("memory")
        if version is None:
            return SimpleNamespace(total=1000, free=300, used=700)
        if not self.profile.has_version_2:
            raise FakeNvmlError("Function Not Found")
        return SimpleNamespace(total=1000, reserved=50, free=300, used=self.used)

    def nvmlDeviceGetComputeRunningProcesses(self, card: str) -> list[Any]:
        self.calls.append("processes")
        if not self.profile.lists_processes:
            raise FakeNvmlError("Insufficient Permissions")
        pid = os.getpid() if self.profile.is_pid_known else 1
        return [SimpleNamespace(pid=pid, usedGpuMemory=self.profile.process_bytes)]


class FakeTorch:
    """As much of torch as probes read: counters of `device_count` devices, the first in use."""

    def __init__(self, *, is_initialized: bool = True, uuid: str = "0a", devices: int = 1) -> None:
        self.cuda = SimpleNamespace(
            is_initialized=lambda: is_initialized,
            device_count=lambda: devices,
            get_device_properties=lambda device: SimpleNamespace(
                uuid=uuid, name="Made-up", total_memory=TOTAL_BYTES
            ),
            get_allocator_backend=lambda: "native",
            memory_stats_as_nested_dict=self.counters,
            mem_get_info=self.read_free,
            is_current_stream_capturing=lambda: self.is_capturing,
        )
        self.version = SimpleNamespace(__version__="2.13.0", cuda="13.0")
        self.is_capturing = False
        self.free_threads: list[str] = []  # who asked for free bytes
        self._C = SimpleNamespace(_cuda_memoryStats=self.counters)

    def read_free(self, device: int) -> tuple[int, int]:
        self.free_threads.append(threading.current_thread().name)
        return TOTAL_BYTES * 3 // 10, TOTAL_BYTES

    def counters(self, device: int) -> dict[str, Any]:
        names = ("allocated", "reserved", "active", "requested", "inactive_split")
        sizes = {name: (100 + index) * (device == 0) for index, name in enumerate(names)}
        nested: dict[str, Any] = {
            f"{name}_bytes": {"all": {"current": size, "peak": 2 * size}}
            for name, size in sizes.items()
        }
        return nested | {"num_device_alloc": 7, "num_alloc_retries": 0, "num_ooms": 0}
