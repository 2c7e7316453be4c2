"""Copies on a stream of their own, timed by events that are read once they are over."""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter_ns
from typing import TYPE_CHECKING

from memscope_runners.memory.cuda_runtime import Event
from memscope_runners.memory.transfer import Timing

if TYPE_CHECKING:
    from memscope_runners.memory.cuda_device import CudaDevice


class CudaTransfer:
    """The copies of one layer, on their way. `marks`: before the first copy and behind each.

    Compute waits for the last mark, and the program for nothing: durations are those between
    marks, and the wait is what the last mark was behind the boundary before compute's wait.
    Without timing there is only the last mark.
    """

    def __init__(self, device: CudaDevice, marks: list[Event], issued_ns: int) -> None:
        self.issued_ns = issued_ns
        self._device = device
        self._marks = marks
        self._boundary: Event | None = None
        self._waited_for_ns = 0

    def wait(self) -> None:
        """Compute goes no further until the copies are there."""
        self._boundary = self._device.boundary
        self._waited_for_ns = perf_counter_ns()
        self._device.compute_stream().wait_event(self._marks[-1])

    def read(self) -> Timing | None:
        """Waits for copies that are not over, but never while a graph is captured: None then.

        The boundary was before compute's wait, so that it is over where compute came further.
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
    """A moment in the order of the copy stream."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def wait(self) -> None:
        if not self._event.query():
            self._event.synchronize()


def _ns_between(start: Event, end: Event) -> int:
    return round(start.elapsed_time(end) * 1e6)  # of ms
