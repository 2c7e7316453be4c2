"""Rare rows, kept as they are: facts, marks, phases, out-of-memory errors and the last map."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from memscope.analysis.timeline.facts import as_count
from memscope.analysis.timeline.map_rows import MapRows
from memscope.analysis.timeline.step_numbers import StepSourceFold
from memscope.events import KINDS, Kind
from memscope.facts import Fact

if TYPE_CHECKING:
    from memscope.reader.scanner import Batch

MAX_FACTS = 4096
MAX_KEPT = 4096
MAX_TEXT = 2000
MAX_FRAMES = 12
METRICS = ("free", "allocated", "reserved", "total", "limit", "active")


class OomScope(StrEnum):
    """What failed: one request of a server, or the whole engine."""

    ENGINE = "engine"
    REQUEST = "request"


OBSERVER = "observer"  # the source of errors that torch's own observer reported


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """One out-of-memory error. ``counters``: free, allocated, reserved, total, limit, in bytes.

    ``source``: "observer" (torch's), "exception", or "" if the program recorded it itself.
    ``error``: text of the exception, if nothing else reported the error. ``stream``: stream of
    the request, if torch's observer reported it. ``frames``: call stack of the request, the
    innermost first.
    """

    t_ns: int
    step: int
    requested_bytes: int
    scope: OomScope
    counters: dict[str, int]
    device: int = -1
    stream: int = -1
    source: str = ""
    error: str = ""
    frames: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment that the user marked."""

    t_ns: int
    step: int
    name: str


@dataclass(frozen=True, slots=True)
class Phase:
    """A period that the user named."""

    start_ns: int
    end_ns: int
    name: str


class RareRows:
    """Collects rare rows: the first ``MAX_KEPT`` of each kind, and the number of all."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.step_source = StepSourceFold()
        self.ooms: list[OutOfMemory] = []
        self.oom_count = {"engine": 0, "request": 0}
        self.marks: list[Mark] = []
        self.phases: list[Phase] = []
        self.dropped: dict[str, int] = {}
        self.map = MapRows()
        self.unkept = 0

    def add_fact(self, batch: Batch, row: int, *, steps: int = 0) -> None:
        """Keep a fact's last value. ``steps``: number of steps that have ended before it."""
        key = batch.name(row)
        if key is None:
            return
        if key == Fact.STEP_SOURCE:
            self.step_source.change(batch.data(row), int(batch["t_ns"][row]), steps)
        if key in self.facts or len(self.facts) < MAX_FACTS:
            self.facts[key] = batch.data(row)
        else:
            self.unkept += 1

    def add(self, batch: Batch) -> None:
        """Keep the rare rows of ``batch`` except facts."""
        for row in batch.where(Kind.OOM).tolist():
            self._keep(self.ooms, oom := _out_of_memory(batch, row))
            self.oom_count[oom.scope] += 1
        for row in batch.where(Kind.MARK).tolist():
            mark = Mark(int(batch["t_ns"][row]), int(batch["step"][row]), batch.name(row) or "")
            self._keep(self.marks, mark)
        for row in batch.where(Kind.PHASE).tolist():
            end = int(batch["t_ns"][row])
            start = end - max(int(batch["duration_ns"][row]), 0)
            self._keep(self.phases, Phase(start, end, batch.name(row) or ""))
        for row in batch.where(Kind.DROPPED).tolist():
            self._add_dropped(batch, row)
        self.map.add(batch)

    def _keep(self, kept: list[Any], item: object) -> None:
        if len(kept) < MAX_KEPT:
            kept.append(item)
        else:
            self.unkept += 1

    def _add_dropped(self, batch: Batch, row: int) -> None:
        data = batch.data(row)
        kind = data.get("kind") if isinstance(data, dict) else None
        kind = kind if isinstance(kind, str) and kind in KINDS else "other"
        count = np.nan_to_num(batch["value"][row], nan=1, posinf=1, neginf=1)
        self.dropped[kind] = self.dropped.get(kind, 0) + int(min(max(count, 0), 1e15))


def _out_of_memory(batch: Batch, row: int) -> OutOfMemory:
    data = batch.data(row)
    data = data if isinstance(data, dict) else {}
    return OutOfMemory(
        t_ns=int(batch["t_ns"][row]),
        step=int(batch["step"][row]),
        requested_bytes=int(batch["bytes"][row]),
        scope=OomScope.REQUEST if data.get("scope") == OomScope.REQUEST else OomScope.ENGINE,
        counters={key: value for key in METRICS if (value := as_count(data.get(key))) is not None},
        device=int(batch["device"][row]),
        stream=int(batch["stream"][row]),
        source=_text(data.get("source")),
        error=_text(data.get("error")),
        frames=_texts(data.get("frames")),
    )


def _text(value: object) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(_text, value[:MAX_FRAMES])) if isinstance(value, list) else ()
