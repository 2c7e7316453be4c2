"""Copies on a stream of their own, timed by events that are read once they are over."""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter_ns
from typing import Protocol

from memscope_runners.memory.cuda_runtime import Event, Stream
from memscope_runners.memory.transfer import Timing


class CopyingDevice(Protocol):
    """The device that a copy was started on."""

    @property
    def boundary(self) -> Event | None:
        """The last event between two layers on the compute stream."""

    def compute_stream(self) -> Stream:
        """The stream that computes."""

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured."""


class CudaTransfer:
    """The copies of one layer that are under way.

    `marks`: an event before the first copy and one after each copy. A copy's duration is the time
    between two marks. Compute waits for the last mark; the program waits for nothing. The wait is
    the time from the boundary before it to the last mark. Without timing only the last mark exists.
    """

    def __init__(self, device: CopyingDevice, marks: list[Event], issued_ns: int) -> None:
        self.issued_ns = issued_ns
        self._device = device
        self._marks = marks
        self._boundary: Event | None = None
        self._waited_for_ns = 0

    def wait(self) -> None:
        """Make the compute stream wait for the copies."""
        self._boundary = self._device.boundary
        self._waited_for_ns = perf_counter_ns()
        self._device.compute_stream().wait_event(self._marks[-1])

    def read(self) -> Timing | None:
        """The durations of the copies; waits until they are done.

        None without timing, and while a CUDA graph is captured: waiting would break the capture.
        """
        if len(self._marks) == 1 or self._boundary is None or self._device.is_capturing():
            return None
        for event in (self._marks[-1], self._boundary):
            if not event.query():
                event.synchronize()
        durations_ns = [_ns_between(start, end) for start, end in pairwise(self._marks)]
        waited_ns = max(_ns_between(self._boundary, self._marks[-1]), 0)
        return Timing(durations_ns, waited_ns, self._waited_for_ns + waited_ns)


class CudaMark:
    """A point on the copy stream that the program can wait for."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def wait(self) -> None:
        if not self._event.query():
            self._event.synchronize()


def _ns_between(start: Event, end: Event) -> int:
    return round(start.elapsed_time(end) * 1e6)  # of ms
