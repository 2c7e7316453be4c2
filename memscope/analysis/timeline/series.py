"""A reading over time, in at most ``MAX_POINTS`` points so that a long run stays small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MAX_POINTS = 2048

Floats = npt.NDArray[np.float64]
Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Series:
    """A reading over time. Each point stands for neighbouring readings.

    A point has the time and value of its last reading, and the lowest and highest value. There
    are at most ``MAX_POINTS``; ``peak`` and ``floor`` are exact.
    """

    t_ns: Times
    minimum: Floats
    maximum: Floats
    last: Floats
    readings: int

    def __len__(self) -> int:
        return len(self.t_ns)

    @property
    def peak(self) -> float:
        """The highest reading."""
        return float(self.maximum.max())

    @property
    def floor(self) -> float:
        """The lowest reading."""
        return float(self.minimum.min())

    @property
    def latest(self) -> float:
        """The last reading."""
        return float(self.last[-1])


def joined(one: Series, other: Series) -> Series:
    """The points of two series, ordered by time."""
    t_ns = np.concatenate((one.t_ns, other.t_ns))
    order = np.argsort(t_ns, kind="stable")
    minimum, maximum, last = (
        np.concatenate((getattr(one, name), getattr(other, name)))[order]
        for name in ("minimum", "maximum", "last")
    )
    return Series(t_ns[order], minimum, maximum, last, one.readings + other.readings)


class SeriesBuilder:
    """Builds a series. The result does not depend on how readings are split into calls."""

    def __init__(self) -> None:
        empty = np.empty(0)
        self._t_ns: Times = np.empty(0, dtype=np.int64)
        self._minimum, self._maximum, self._last = empty, empty, empty
        self._readings = 0
        self._stride = 1

    def add(self, t_ns: Times, values: Floats) -> None:
        """Add one or more readings in the order of the file."""
        point = (self._readings + np.arange(len(values))) // self._stride
        self._readings += len(values)
        starts, ends = _runs(point)
        added = (
            t_ns[ends],
            np.minimum.reduceat(values, starts),
            np.maximum.reduceat(values, starts),
            values[ends],
        )
        if len(self._t_ns) and int(point[0]) == len(self._t_ns) - 1:  # the last point is not full
            added[1][0] = min(added[1][0], self._minimum[-1])
            added[2][0] = max(added[2][0], self._maximum[-1])
        self._keep(int(point[0]), *added)
        while len(self._t_ns) > MAX_POINTS:
            self._merge_neighbours()

    def series(self) -> Series:
        """The series of the readings so far."""
        return Series(self._t_ns, self._minimum, self._maximum, self._last, self._readings)

    def _keep(self, kept: int, t_ns: Times, minimum: Floats, maximum: Floats, last: Floats) -> None:
        self._t_ns = np.concatenate((self._t_ns[:kept], t_ns))
        self._minimum = np.concatenate((self._minimum[:kept], minimum))
        self._maximum = np.concatenate((self._maximum[:kept], maximum))
        self._last = np.concatenate((self._last[:kept], last))

    def _merge_neighbours(self) -> None:
        starts, ends = _runs(np.arange(len(self._t_ns)) // 2)
        self._stride *= 2
        self._t_ns, self._last = self._t_ns[ends], self._last[ends]
        self._minimum = np.minimum.reduceat(self._minimum, starts)
        self._maximum = np.maximum.reduceat(self._maximum, starts)


def _runs(keys: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Start and end of each run of equal keys."""
    changes = np.flatnonzero(keys[1:] != keys[:-1])
    return np.concatenate(([0], changes + 1)), np.append(changes, len(keys) - 1)
