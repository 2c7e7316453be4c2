"""Torch with CUDA in miniature: its allocator calls observers before it raises, as torch's does."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.fakes import FakeTorch
from tests.memscope.fake_allocator import GIB, MIB, FakeAllocator, FakeOom

Observer = Callable[[int, int, int, int], object]


class OutOfMemoryError(RuntimeError):
    """Named as torch's is."""


class FakeCuda(FakeTorch):
    """``version``: decides what its snapshots look like and which arguments they take."""

    def __init__(self, version: str = "2.12", *, capacity: int = 4 * GIB, fraction: float = 1.0):
        super().__init__()
        self.__version__ = f"{version}.0"
        self.version_name, self.total, self.fraction = version, capacity, fraction
        self.allocator = FakeAllocator(capacity, limit=int(capacity * fraction))
        self.observers: list[Observer] = []
        self.history: list[tuple[Any, dict[str, Any]]] = []
        self.snapshots = 0
        self._C = SimpleNamespace(
            _cuda_memoryStats=self.counters,
            _cuda_attach_out_of_memory_observer=self.attach,
            _cuda_memorySnapshot=self.snapshot,
            _cuda_getCurrentRawStream=lambda device: 0,
        )
        self.cuda.memory = SimpleNamespace(
            memory_snapshot=self._public(),
            _snapshot=self.snapshot,
            _record_memory_history=lambda *args, **kwargs: self.history.append((args, kwargs)),
        )
        properties = SimpleNamespace(uuid="0a", total_memory=capacity, name="Fake")
        self.cuda.get_device_properties = lambda device: properties

    def attach(self, observer: Observer) -> None:
        self.observers.append(observer)

    def snapshot(self, arguments: object = None) -> dict[str, Any]:
        self.snapshots += 1
        return self.allocator.snapshot(self.version_name)

    def counters(self, device: int) -> dict[str, Any]:
        state = self.allocator.state() if hasattr(self, "allocator") else {}
        reserved, allocated = state.get("reserved", 0), state.get("allocated", 0)
        sizes = {
            "reserved_bytes": reserved,
            "allocated_bytes": allocated,
            "active_bytes": allocated + state.get("pending", 0),
            "requested_bytes": allocated,
            "inactive_split_bytes": state.get("free", 0),
        }
        nested: dict[str, Any] = {
            name: {"all": {"current": size, "peak": max(size, 1)}} for name, size in sizes.items()
        }
        return nested | {"num_alloc_retries": 1, "num_ooms": 1}

    def alloc(self, size: int, **fields: Any) -> int:
        """As torch allocates: what fails is told to observers, then raised."""
        try:
            return self.allocator.alloc(size, **fields)
        except FakeOom:
            wanted = -(-size // (2 * MIB)) * 2 * MIB
            free = self.total - self.allocator.reserved
            for observer in self.observers:
                observer(0, wanted, int(self.total * self.fraction), free)
            raise OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {wanted / GIB:.2f} GiB. GPU 0 has a total "
                f"capacity of {self.total / GIB:.2f} GiB of which {free / GIB:.2f} GiB is free."
            ) from None

    def _public(self) -> Callable[..., Any]:
        if int(self.version_name.partition(".")[2]) >= 11:
            return lambda mempool_id=None, include_traces=True: self.snapshot()["segments"]
        return lambda mempool_id=None: self.snapshot()["segments"]
