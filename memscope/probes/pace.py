"""Decides how often to take a reading, so that all readings cost a small share of the time."""

from __future__ import annotations

import math
import statistics
from collections import deque

LAYER_SHARE = 0.005  # of the time between steps, for readings at layer boundaries
STEP_SHARE = 0.0025  # for readings at step ends
LEAST_NS = 50_000_000  # between two readings at step ends: at most 20 a second
FIRST_READ = 2  # the first forwards of a program warm up and are not measured
MOST = 1 << 16
KEPT = 9


class StepPace:
    """Reads one step in ``every``, so that reading takes at most ``share`` of all steps' time."""

    def __init__(self, share: float = LAYER_SHARE) -> None:
        self._share = share
        self._intervals: deque[int] = deque(maxlen=KEPT)
        self._costs: deque[int] = deque(maxlen=KEPT)
        self._last_ns = 0
        self._next = FIRST_READ
        self._is_read = False
        self.every = 1
        self.steps = 0

    @property
    def cost_ns(self) -> float:
        """Median cost of a step that was read; NaN before the first."""
        return float(statistics.median(self._costs)) if self._costs else math.nan

    @property
    def step_ns(self) -> float:
        """Median time between starts of steps that were not read; NaN before that."""
        return float(statistics.median(self._intervals)) if self._intervals else math.nan

    def start_step(self, now_ns: int) -> bool:
        """A step starts. Returns whether to read it."""
        if self.steps > 1 and not self._is_read:
            self._intervals.append(now_ns - self._last_ns)
        self._last_ns = now_ns
        self._is_read = self.steps >= self._next
        self.steps += 1
        return self._is_read

    def end_read(self, cost_ns: int) -> bool:
        """A step was read. Returns whether ``every`` changed enough to record that."""
        self._costs.append(cost_ns)
        before = self.every
        if self._intervals:
            needed = math.ceil(self.cost_ns / (self._share * max(self.step_ns, 1.0)))
            self.every = min(max(needed, 1), MOST)
        self._next = self.steps + self.every - 1
        return len(self._costs) == 1 or not before / 2 < self.every < before * 2


class TimePace:
    """Allows a reading when enough time has passed since the last one for its cost."""

    def __init__(self, share: float = STEP_SHARE, least_ns: int = LEAST_NS) -> None:
        self._share, self._least_ns = share, least_ns
        self._due_ns = 0

    def is_due(self, now_ns: int) -> bool:
        """Whether a reading may be taken now."""
        return now_ns >= self._due_ns

    def end_read(self, now_ns: int, cost_ns: int) -> None:
        """A reading was taken that held up the program for ``cost_ns``.

        On the recorder's thread that is at most its CPU time: while it waits, the program runs.
        """
        self._due_ns = now_ns + max(round(cost_ns / self._share), self._least_ns)
