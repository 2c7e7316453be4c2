"""One message of the file for readers: its events as arrays."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memscope.events import COLUMNS

_ABSENT = {column.name: column.absent for column in COLUMNS}


class Batch:
    """Events of one message, as arrays of ``rows`` values each.

    An absent number is the column's ``absent`` value (−1, NaN for ``value``, 0 for ``address``).
    ``is_thinned``: the batch is from an old segment, where sums stand for most events.
    """

    __slots__ = ("_arrays", "_names", "_record", "is_thinned", "rows", "sequence")

    def __init__(self, record: pa.RecordBatch, sequence: int, *, is_thinned: bool = False) -> None:
        self._record = record
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        self._names: tuple[npt.NDArray[np.int32], list[str]] | None = None
        self.sequence = sequence
        self.rows = record.num_rows
        self.is_thinned = is_thinned

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """The numbers of ``column``."""
        array = self._arrays.get(column)
        if array is None:
            values = self._record.column(column)
            if values.null_count:
                values = pc.fill_null(values, pa.scalar(_ABSENT[column], values.type))
            array = self._arrays[column] = values.to_numpy(zero_copy_only=False)
        return array

    @property
    def names(self) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Column ``name`` as codes into a list of distinct names; −1 if absent."""
        if self._names is None:
            encoded = self._record.column("name").dictionary_encode()
            codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
            self._names = codes, encoded.dictionary.to_pylist()
        return self._names

    def name(self, row: int) -> str | None:
        """Name of one row."""
        text: str | None = self._record.column("name")[row].as_py()
        return text

    def data(self, row: int) -> Any:
        """Column ``data`` of one row, decoded; None if absent or not JSON."""
        text = self._record.column("data")[row].as_py()
        try:
            return None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            return None

    def where(self, kind: int) -> npt.NDArray[np.int64]:
        """Row numbers of one kind."""
        return np.flatnonzero(self["kind"] == kind)

    @property
    def record(self) -> pa.RecordBatch:
        """The Arrow batch itself, for exports."""
        return self._record
