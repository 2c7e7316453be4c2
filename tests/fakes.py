"""Stand-ins for tests: a recorder that keeps its rows in a list."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memscope import events


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

    def emit(self, kind: int, step: int = -1, layer: int = -1, **fields: Any) -> None:
        t_ns = fields.get("at_ns") or self.clock()
        self.rows.append(Row(kind, step, layer, **fields, t_ns=t_ns))

    def fact(self, key: str, data: object) -> None:
        self.emit(events.FACT, name=key, data=data)

    def sample(
        self,
        metric: str,
        *,
        bytes: int | None = None,
        value: float | None = None,
        step: int = -1,
        layer: int = -1,
        device: int = -1,
    ) -> None:
        fields = {"name": metric, "bytes": bytes, "value": value, "device": device}
        self.emit(events.SAMPLE, step, layer, **fields)

    def of(self, *kinds: int) -> Iterator[Row]:
        """The rows of these kinds."""
        return (row for row in self.rows if row.kind in kinds)

    def count(self, *kinds: int, step: int | None = None) -> int:
        """How many rows of these kinds there are, in one step or in all."""
        return sum(step is None or row.step == step for row in self.of(*kinds))
