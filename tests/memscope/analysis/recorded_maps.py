"""Events of an allocator's map, as the probe emits them at an out-of-memory error."""

from __future__ import annotations

from typing import Any

from memscope.events import Kind
from memscope.probes.torch.allocator_map import emit_map
from tests.memscope.analysis.build import Event, event, fact
from tests.memscope.fake_allocator import FakeAllocator


class _Events(list[Event]):
    """Takes what a recorder takes."""

    def emit(self, kind: int, *, at_ns: int, **fields: Any) -> None:
        self.append(event(kind, at_ns, **fields))

    def fact(self, key: str, data: object) -> None:
        self.append(fact(key, data))


def map_rows(allocator: FakeAllocator, *, at_ns: int = 9) -> list[Event]:
    """The error and the map of device 0."""
    found = _Events([event(Kind.OOM, at_ns, bytes=1, data={"scope": "engine"})])
    emit_map(
        found,  # type: ignore[arg-type]
        allocator.snapshot(),
        device=0,
        at_ns=at_ns,
        torch_version="2.12",
    )
    return found
