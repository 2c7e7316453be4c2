"""The readings of one batch, decoded once for everything that folds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memscope.events import Kind
from memscope.format.batch import Batch

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Samples:
    """Rows of kind ``sample`` in the order of the batch; each array has one value per row.

    ``rows``: position in the batch. ``codes``: index into ``names``, −1 without a name.
    ``bytes``: −1 if the reading is not in bytes. ``values``: bytes, or else the value, NaN if
    there is neither.
    """

    names: list[str]
    rows: Numbers
    codes: npt.NDArray[np.int32]
    t_ns: Numbers
    step: Numbers
    layer: Numbers
    device: Numbers
    bytes: Numbers
    values: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_reading(self) -> npt.NDArray[np.bool_]:
        """Which rows have a name and a finite value."""
        return np.isfinite(self.values) & (self.codes >= 0)

    def number(self, numbers: Mapping[str, int]) -> Numbers:
        """For each row the number of its name in ``numbers``; −1 for other names."""
        return np.array([numbers.get(name, -1) for name in self.names] + [-1])[self.codes]

    def where(self, chosen: npt.NDArray[Any] | slice) -> Samples:
        """The rows chosen by a mask, by indices or by a slice."""
        if not isinstance(chosen, slice) and chosen.dtype == bool and chosen.all():
            return self
        return Samples(self.names, *(getattr(self, name)[chosen] for name in _COLUMNS))

    def between(self, start: int, stop: int) -> Samples:
        """The rows from ``start`` up to but not including ``stop`` of the batch."""
        first, end = np.searchsorted(self.rows, (start, stop)).tolist()
        return self if end - first == len(self) else self.where(slice(first, end))


_COLUMNS = tuple(Samples.__slots__[1:])


def decode_samples(batch: Batch) -> Samples:
    """Decode the readings of ``batch``."""
    rows = batch.where(Kind.SAMPLE)
    codes, names = batch.names
    size = batch["bytes"][rows]
    return Samples(
        names=names,
        rows=rows,
        codes=codes[rows],
        t_ns=batch["t_ns"][rows],
        step=batch["step"][rows],
        layer=batch["layer"][rows],
        device=batch["device"][rows],
        bytes=size,
        values=np.where(size >= 0, size, batch["value"][rows]),
    )
