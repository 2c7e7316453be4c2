"""Tables: frozen dataclasses whose fields are arrays, one value a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Table = TypeVar("Table")


def take(table: Table, rows: npt.NDArray[Any]) -> Table:
    """Rows of ``table``: a mask, or row numbers in the order that is wanted."""
    return type(table)(*(column[rows] for column in _columns(table)))


def join(tables: Sequence[Table]) -> Table:
    """Rows of all ``tables``, one table after the other."""
    columns = zip(*map(_columns, tables), strict=True)
    return type(tables[0])(*(np.concatenate(parts) for parts in columns))


def _columns(table: Any) -> list[npt.NDArray[Any]]:
    return [getattr(table, field.name) for field in fields(table)]
