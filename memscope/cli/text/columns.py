"""Aligned columns of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def align(rows: Iterable[Sequence[str]], indent: str = "  ") -> list[str]:
    """One line for each row. Each column is as wide as its widest cell."""
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        (
            indent + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
