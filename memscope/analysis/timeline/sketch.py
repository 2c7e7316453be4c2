"""Percentiles of any number of readings in bounded memory."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

RELATIVE_ERROR = 0.002
MAX_BUCKETS = 4096
LEAST = 1e-12  # smaller magnitudes count as zero

Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.int64]

_WIDTH = math.log1p(RELATIVE_ERROR)
_ZERO = 1 << 20  # above the bucket of any magnitude


class Sketch:
    """Counts of readings in buckets 0.2 % wide. Each bucket keeps its highest reading.

    A percentile is never below the exact one and at most 0.2 % above it. It is exact if no
    bucket has two different readings. The result does not depend on the order of readings or on
    how they are split into calls (the buckets of DDSketch, Masson, Rim and Lee 2019). Beyond
    ``MAX_BUCKETS`` the lowest buckets are merged.
    """

    def __init__(self) -> None:
        self._keys: Keys = np.empty(0, dtype=np.int64)
        self._counts: Keys = np.empty(0, dtype=np.int64)
        self._highest: Floats = np.empty(0)

    def __len__(self) -> int:
        return int(self._counts.sum())

    def add(self, values: Floats) -> None:
        """Add readings. They must be finite."""
        if not len(values):
            return
        keys = np.append(self._keys, bucket_keys(values))
        counts = np.append(self._counts, np.ones(len(values), dtype=np.int64))
        values = np.append(self._highest, values)
        self._keys, self._counts, self._highest = _merge(keys, counts, values)
        if len(self._keys) > MAX_BUCKETS:
            lowest = self._keys[-MAX_BUCKETS]
            keys = np.maximum(self._keys, lowest)
            self._keys, self._counts, self._highest = _merge(keys, self._counts, self._highest)

    def percentile(self, share: float) -> float:
        """The lowest reading that is at least as high as ``share`` of all (nearest rank)."""
        rank = max(math.ceil(share * len(self)), 1)
        return float(self._highest[np.searchsorted(np.cumsum(self._counts), rank)])


def bucket_keys(values: Floats) -> Keys:
    """The bucket of each value. Larger values have larger keys."""
    size = np.abs(values)
    is_zero = size < LEAST
    key = np.floor(np.log(np.where(is_zero, 1.0, size)) / _WIDTH).astype(np.int64) + _ZERO
    return np.where(is_zero, 0, np.where(values < 0, -key, key))


def _merge(keys: Keys, counts: Keys, values: Floats) -> tuple[Keys, Keys, Floats]:
    """Merge equal keys into one bucket, in order of key."""
    order = np.argsort(keys, kind="stable")
    keys, counts, values = keys[order], counts[order], values[order]
    starts = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    return keys[starts], np.add.reduceat(counts, starts), np.maximum.reduceat(values, starts)
