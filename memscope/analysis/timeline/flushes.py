"""Flushes of torch's cache (empty_cache): how many, who called them, and their cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memscope.events import Kind

if TYPE_CHECKING:
    from memscope.reader.scanner import Batch

CAPTURE = "graph capture"
MAX_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Flush:
    """One call of empty_cache. ``duration_ns`` and ``bytes`` are −1 if they were not measured."""

    t_ns: int
    bytes: int
    duration_ns: int
    caller: str


@dataclass(frozen=True, slots=True)
class Flushes:
    """Flushes after a moment: their ``count``, and those among the first ``MAX_KEPT`` kept."""

    count: int
    seen: tuple[Flush, ...]

    @property
    def caller(self) -> str:
        """The most frequent caller among the kept flushes."""
        return Counter(flush.caller for flush in self.seen).most_common(1)[0][0]

    @property
    def mean_bytes(self) -> float:
        """Mean bytes that a flush gave back, among the kept ones."""
        return _mean([flush.bytes for flush in self.seen if flush.bytes >= 0])

    @property
    def mean_ns(self) -> float:
        """Mean duration of a flush in ns, among the kept ones."""
        return _mean([flush.duration_ns for flush in self.seen if flush.duration_ns >= 0])


class FlushFold:
    """Collects flushes. Flushes before a graph capture are left out."""

    def __init__(self) -> None:
        self._count = 0
        self._kept: list[Flush] = []

    def add(self, batch: Batch) -> None:
        """Add the flushes of one batch."""
        for row in batch.where(Kind.ALLOCATOR_FLUSH).tolist():
            if batch.name(row) == CAPTURE:
                continue
            self._count += 1
            if len(self._kept) < MAX_KEPT:
                self._kept.append(_flush(batch, row))

    def after(self, t_ns: int) -> Flushes:
        """The flushes that ended after ``t_ns``."""
        seen = tuple(flush for flush in self._kept if flush.t_ns > t_ns)
        return Flushes(self._count - (len(self._kept) - len(seen)), seen)


def _flush(batch: Batch, row: int) -> Flush:
    data = batch.data(row)
    caller = data.get("caller") if isinstance(data, dict) else None
    return Flush(
        t_ns=int(batch["t_ns"][row]),
        bytes=int(batch["bytes"][row]),
        duration_ns=int(batch["duration_ns"][row]),
        caller=str(caller or "unknown"),
    )


def _mean(numbers: list[int]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0
