"""Copies from the host to a device, under way or done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Timing:
    """How long each copy took, and for how long compute waited for them, until `ready_ns`."""

    durations_ns: Sequence[int]
    waited_ns: int
    ready_ns: int


class Transfer(Protocol):
    """The copies of one layer, started together at `issued_ns` of the process's clock."""

    issued_ns: int

    def wait(self) -> Timing | None:
        """Holds compute until the copies are there. None: `read` it later. Raises their errors."""

    def read(self) -> Timing | None:
        """The timing of copies that compute has waited for; None where it cannot be had now."""


class FinishedTransfer:
    """Copies that were made at once: compute waited for all of each."""

    def __init__(self, copies: Callable[[], list[int]]) -> None:
        self.issued_ns = perf_counter_ns()
        durations_ns = copies()
        self._timing = Timing(durations_ns, sum(durations_ns), perf_counter_ns())

    def wait(self) -> Timing:
        return self._timing

    def read(self) -> Timing:
        return self._timing


class WorkerTransfer:
    """Copies that a worker thread makes while the program computes."""

    def __init__(self, worker: ThreadPoolExecutor, copies: Callable[[], list[int]]) -> None:
        self.issued_ns = perf_counter_ns()
        self._durations_ns: Future[list[int]] = worker.submit(copies)

    def wait(self) -> Timing:
        is_late = not self._durations_ns.done()
        started_ns = perf_counter_ns()
        durations_ns = self._durations_ns.result()
        ready_ns = perf_counter_ns()
        return Timing(durations_ns, ready_ns - started_ns if is_late else 0, ready_ns)

    def read(self) -> Timing:
        return self.wait()


class WorkerMark:
    """A place in the queue of the worker thread, if there is one."""

    def __init__(self, reached: Future[None] | None) -> None:
        self._reached = reached

    def wait(self) -> None:
        if self._reached is not None:
            self._reached.result()
