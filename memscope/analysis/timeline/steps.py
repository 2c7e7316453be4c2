"""A table with one row for each step that ended."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from memscope.events import Kind

Numbers = npt.NDArray[np.int64]

MAX_STEPS = 1 << 20
POOL_KINDS = (Kind.POOL_HIT, Kind.POOL_MISS, Kind.POOL_RETURN, Kind.POOL_OVERFLOW)
# Kind → the column with its number of events in a step.
COUNT_COLUMNS = {
    Kind.WAIT: "waits",
    Kind.POOL_HIT: "pool_hits",
    Kind.POOL_MISS: "pool_misses",
    Kind.POOL_RETURN: "pool_returns",
    Kind.POOL_OVERFLOW: "pool_overflows",
    Kind.DEVICE_MALLOC: "device_mallocs",
    Kind.DEVICE_FREE: "device_frees",
    Kind.ALLOC_RETRY: "alloc_retries",
    Kind.ALLOCATOR_FLUSH: "allocator_flushes",
}


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps that ended, ordered by number. Each array is int64 with one value per step.

    ``step``: 0 is the program's first step; earlier ones are below 0. In other columns −1 means
    not measured. Counts of layers exclude lm_head; counts of entries and bytes include it.
    "Ready" means that compute may use it: an upload is in flight until its layer runs.
    """

    step: Numbers
    start_ns: Numbers
    end_ns: Numbers
    duration_ns: Numbers
    waits: Numbers
    wait_ns: Numbers
    uploads: Numbers
    """layers"""
    upload_bytes: Numbers
    upload_duration_ns: Numbers
    evictions: Numbers
    """layers"""
    evict_bytes: Numbers
    pool_hits: Numbers
    pool_misses: Numbers
    pool_returns: Numbers
    pool_overflows: Numbers
    device_mallocs: Numbers
    device_frees: Numbers
    alloc_retries: Numbers
    allocator_flushes: Numbers
    entries_at_end: Numbers
    peak_entries: Numbers
    peak_layers: Numbers
    peak_held_layers: Numbers
    """Ready or in flight."""
    resident_bytes: Numbers
    """Ready at the end."""
    peak_resident_bytes: Numbers
    in_flight_bytes: Numbers
    """At the end."""
    idle_bytes: Numbers
    """Idle in the weight pool at the end."""
    allocated_bytes: Numbers
    """Handed out by the device at the end."""
    device_peak_bytes: Numbers
    """The most that the device had handed out up to the end."""
    kv_bytes: Numbers

    def __len__(self) -> int:
        return len(self.step)

    def after(self, count: int) -> Steps:
        """The steps without the first ``count``."""
        return Steps(*(getattr(self, field.name)[count:] for field in fields(self)))


COLUMN = {field.name: index for index, field in enumerate(fields(Steps))}


class StepTable:
    """Collects steps as they end; keeps the first ``MAX_STEPS``."""

    def __init__(self) -> None:
        self._rows: Numbers = np.empty((64, len(COLUMN)), dtype=np.int64)
        self._count = 0
        self.ended = 0

    def append(self, block: Numbers) -> None:
        """Add ended steps. ``block`` has shape (steps, columns), in the order of the file."""
        self.ended += len(block)
        block = block[: MAX_STEPS - self._count]
        needed = self._count + len(block)
        if needed > len(self._rows):
            grown = np.empty((max(needed, 2 * len(self._rows)), len(COLUMN)), dtype=np.int64)
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        self._rows[self._count : needed] = block
        self._count = needed

    @property
    def last_end_ns(self) -> int:
        """End of the last step in ns; 0 before the first."""
        return int(self._rows[self._count - 1, COLUMN["end_ns"]]) if self._count else 0

    def steps(self) -> Steps:
        """The steps so far."""
        rows = self._rows[: self._count]
        numbers = rows[:, COLUMN["step"]]
        if np.any(numbers[1:] < numbers[:-1]):
            rows = rows[np.argsort(numbers, kind="stable")]
        return Steps(*rows.T)
