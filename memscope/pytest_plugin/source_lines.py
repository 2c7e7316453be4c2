"""The line in a file where a text is written: markers do not know their own."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def find_line(path: str, text: str) -> int | None:
    """Number of the first line of ``path`` that contains ``text``, or None."""
    return next(iter(_lines_with(path, text)), None)


def marker_place(item: pytest.Item, text: str) -> str:
    """ "file:line" of the marker of ``item`` that contains ``text``, or else of its test.

    If several lines contain it, the last one above the test counts. A text that is built at run
    time is in no line: then the nearest marker counts.
    """
    path, line, _ = item.reportinfo()
    first = _first_line(item, (line or 0) + 1)
    for wanted in (text, "mark.memscope"):
        lines = _lines_with(str(path), wanted)
        above = [number for number in lines if number <= first]
        if lines:
            return f"{item.location[0]}:{above[-1] if above else lines[0]}"
    return f"{item.location[0]}:{first}"


def _lines_with(path: str, text: str) -> list[int]:
    lines = linecache.getlines(path)
    return [number for number, line in enumerate(lines, 1) if text and text in line]


def _first_line(item: pytest.Item, line: int) -> int:
    """The line of a test's ``def``, below its decorators, or ``line`` if it has no function."""
    function = getattr(item, "function", None)
    code = getattr(function, "__code__", None)
    if code is None:
        return line
    lines = linecache.getlines(code.co_filename)
    for number in range(code.co_firstlineno, len(lines) + 1):
        if lines[number - 1].lstrip().startswith(("def ", "async def ")):
            return number
    return line
