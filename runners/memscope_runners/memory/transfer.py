"""Copies from the host to a device, in flight or done."""

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
        """Make compute wait for the copies. None: `read` the timing later. Raises their errors."""

    def read(self) -> Timing | None:
        """The timing of copies that compute waited for; None if it is not known now."""


class FinishedTransfer:
    """Copies that are done already: compute waited for all of them."""

    def __init__(self, copies: Callable[[], list[int]]) -> None:
        self.issued_ns = perf_counter_ns()
        durations_ns = copies()
        self._timing = Timing(durations_ns, sum(durations_ns), perf_counter_ns())

    def wait(self) -> Timing:
        return self._timing

    def read(self) -> Timing:
        return self._timing


class WorkerTransfer:
    """Copies made by a worker thread while the program computes."""

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
    """A place in the worker thread's queue."""

    def __init__(self, reached: Future[None] | None) -> None:
        self._reached = reached

    def wait(self) -> None:
        if self._reached is not None:
            self._reached.result()
