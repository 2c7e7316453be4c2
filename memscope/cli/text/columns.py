"""Plain text for people: rows aligned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def align(rows: Iterable[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows as lines, each column as wide as its widest cell."""
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        (
            indent + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
