"""What libraries other than torch's allocator hold on each device, from CUPTI's records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from memscope.probes.cupti.records import Allocation

UNKNOWN = "a library that CUPTI does not name"
MAX_OPEN = 1 << 20  # allocations that are followed; past that the sums would be wrong

Ranges = list[tuple[int, int]]


@dataclass(slots=True)
class PoolUse:
    """A stream-ordered pool: what the driver keeps for it, and which library holds how much."""

    bytes: int = 0
    used: Counter[str] = field(default_factory=Counter)
    is_torch: bool = False


class Outside:
    """Sums calls up. ``torch_ranges``: the addresses that torch's allocator holds now."""

    def __init__(self, torch_ranges: Callable[[], Ranges]) -> None:
        self._torch_ranges = torch_ranges
        self._open: dict[int, Allocation] = {}
        self._held: dict[int, Counter[str]] = {}
        self._pools: dict[tuple[int, int], PoolUse] = {}
        self._calls: dict[int, Counter[str]] = {}

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices on which anything outside torch was ever allocated."""
        return tuple(sorted(self._calls))

    def calls(self, device: int) -> dict[str, int]:
        """Library → number of its allocations and releases."""
        return dict(self._calls.get(device, Counter()).most_common())

    def libraries(self, device: int) -> dict[str, int]:
        """Library → bytes it holds outside pools."""
        held = self._held.get(device, Counter())
        return {name: size for name, size in held.most_common() if size > 0}

    def pool_bytes(self, device: int) -> int:
        """Bytes of stream-ordered pools, without torch's own."""
        return sum(pool.bytes for pool in self._own_pools(device))

    def pool_users(self, device: int) -> dict[str, int]:
        """Library → bytes it holds in these pools."""
        used: Counter[str] = Counter()
        for pool in self._own_pools(device):
            used.update(pool.used)
        return {name: size for name, size in used.most_common() if size > 0}

    def held_bytes(self, device: int) -> int:
        """Bytes of libraries and pools together."""
        return sum(self.libraries(device).values()) + self.pool_bytes(device)

    def add(self, calls: Iterable[Allocation]) -> Iterator[tuple[Allocation, str]]:
        """Take calls in order. Returns those outside torch, each with its library."""
        ranges: Ranges | None = None
        for call in calls:
            if not call.is_on_device:
                continue
            opened = self._open.pop(call.address, None)
            if opened is not None:  # an allocation where one was: its release is not recorded
                yield self._release(call, opened)
            if call.is_release:
                continue
            if call.library is None:
                ranges = self._torch_ranges() if ranges is None else ranges
                if any(start <= call.address < end for start, end in ranges):
                    continue
            if self._take(call):
                yield call, call.library or UNKNOWN

    def _take(self, call: Allocation) -> bool:
        if call.is_torch:
            if call.pool is not None:
                self._pool(call).is_torch = True
            return False
        if len(self._open) >= MAX_OPEN:
            raise RuntimeError(f"more than {MAX_OPEN} allocations outside torch at once")
        name = call.library or UNKNOWN
        self._open[call.address] = call
        self._calls.setdefault(call.device, Counter())[name] += 1
        if call.pool is not None:
            pool = self._pool(call)
            pool.bytes = call.pool.bytes
            pool.used[name] += call.bytes
        else:
            self._held.setdefault(call.device, Counter())[name] += call.bytes
        return True

    def _release(self, call: Allocation, opened: Allocation) -> tuple[Allocation, str]:
        name = opened.library or UNKNOWN
        released = replace(opened, t_ns=call.t_ns, is_release=True)
        self._calls[opened.device][name] += 1
        if opened.pool is None:
            self._held[opened.device][name] -= opened.bytes
            return released, name
        pool = self._pool(opened)
        pool.used[name] -= opened.bytes
        if not opened.pool.keeps_all and not any(pool.used.values()):
            pool.bytes = 0  # given back when the stream is next waited for
        return released, name

    def _pool(self, call: Allocation) -> PoolUse:
        assert call.pool is not None
        return self._pools.setdefault((call.device, call.pool.address), PoolUse())

    def _own_pools(self, device: int) -> Iterator[PoolUse]:
        for (place, _), pool in self._pools.items():
            if place == device and not pool.is_torch:
                yield pool
