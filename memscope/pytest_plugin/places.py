"""Where something that was written stands: markers themselves do not know their line."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def find_line(path: str, text: str, *, before: int | None = None) -> int:
    """The line of ``path`` that holds ``text``: the last one up to ``before``, else the first.

    Where the text is put together at run time it stands in none: then ``before``, else 1.
    """
    lines = linecache.getlines(path)
    found = [number for number, line in enumerate(lines, 1) if text and text in line]
    above = [number for number in found if before is None or number <= before]
    if before is None:
        return found[0] if found else 1
    return above[-1] if above else found[0] if found else before


def marker_place(item: pytest.Item, text: str) -> str:
    """ "file:line" of the marker of ``item`` that holds ``text``; else of the test."""
    path, line, _ = item.reportinfo()
    number = find_line(str(path), text, before=_first_line(item, (line or 0) + 1))
    shown = item.location[0]
    return f"{shown}:{number}"


def _first_line(item: pytest.Item, line: int) -> int:
    """The line of a test's ``def``, below its decorators; ``line`` where there is no function."""
    function = getattr(item, "function", None)
    code = getattr(function, "__code__", None)
    if code is None:
        return line
    lines = linecache.getlines(code.co_filename)
    for number in range(code.co_firstlineno, len(lines) + 1):
        if lines[number - 1].lstrip().startswith(("def ", "async def ")):
            return number
    return line
