"""Copies from the host to a device, under way or done."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter_ns
from typing import Protocol


class Transfer(Protocol):
    """The copies of one layer, started together at `issued_ns` of the process's clock."""

    issued_ns: int

    def wait(self) -> int:
        """Holds compute until the copies are there: for how many ns. Raises their errors."""

    @property
    def durations_ns(self) -> list[int]:
        """How long each copy took, once waited for."""


class FinishedTransfer:
    """Copies that were made at once: compute waited for all of each."""

    def __init__(self, copies: Callable[[], list[int]]) -> None:
        self.issued_ns = perf_counter_ns()
        self.durations_ns = copies()

    def wait(self) -> int:
        return sum(self.durations_ns)


class WorkerTransfer:
    """Copies that a worker thread makes while the program computes."""

    def __init__(self, worker: ThreadPoolExecutor, copies: Callable[[], list[int]]) -> None:
        self.issued_ns = perf_counter_ns()
        self._durations_ns: Future[list[int]] = worker.submit(copies)

    def wait(self) -> int:
        if self._durations_ns.done():
            self._durations_ns.result()
            return 0
        started_ns = perf_counter_ns()
        self._durations_ns.result()
        return perf_counter_ns() - started_ns

    @property
    def durations_ns(self) -> list[int]:
        return self._durations_ns.result()
