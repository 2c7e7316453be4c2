"""Plain text for people: names made harmless, rows aligned."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

MAX_TEXT = 400
_HARMLESS = ("L", "M", "N", "P", "S", "Z")  # letters, marks, numbers, signs, spaces


def clean(text: object, limit: int | None = None) -> str:
    """``text`` on one line and without control characters, as a terminal may be trusted with."""
    words = " ".join(str(text).split())
    shown = "".join(
        character if unicodedata.category(character)[0] in _HARMLESS else "\ufffd"
        for character in words
    )
    return shown if limit is None or len(shown) <= limit else f"{shown[: limit - 1]}…"


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
