"""Where something that was written stands: markers themselves do not know their line."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def find_line(path: str, text: str) -> int | None:
    """The first line of ``path`` that holds ``text``; None where it stands in none."""
    found = _lines_with(path, text)
    return found[0] if found else None


def marker_place(item: pytest.Item, text: str) -> str:
    """ "file:line" of the marker of ``item`` that holds ``text``; else of its test.

    Of several lines it is the last one above the test's own. A text that is put together at run
    time stands in none: then the nearest marker counts.
    """
    path, line, _ = item.reportinfo()
    first = _first_line(item, (line or 0) + 1)
    for wanted in (text, "mark.memscope"):
        found = _lines_with(str(path), wanted)
        above = [number for number in found if number <= first]
        if found:
            return f"{item.location[0]}:{above[-1] if above else found[0]}"
    return f"{item.location[0]}:{first}"


def _lines_with(path: str, text: str) -> list[int]:
    lines = linecache.getlines(path)
    return [number for number, line in enumerate(lines, 1) if text and text in line]


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
