"""Lines of spans: what a widget shows before it is drawn. Independent of Textual.

A span is text and a role. ``palette`` gives each role its look. Text in a span is never markup.
"""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap

from rich.cells import cell_len, set_cell_size

from memscope_dashboards.tui.palette import Role

Span = tuple[str, Role]
StyledLine = tuple[Span, ...]

EMPTY: StyledLine = ()


def length(line: StyledLine) -> int:
    """Width of ``line`` in terminal cells."""
    return sum(cell_len(text) for text, _ in line)


def fit(line: StyledLine, width: int) -> StyledLine:
    """``line`` cut to ``width`` cells, with an ellipsis if something was cut off."""
    if length(line) <= width:
        return line
    kept: list[Span] = []
    room = max(width - 1, 0)
    for text, role in line:
        size = cell_len(text)
        if size > room:
            kept.append((set_cell_size(text, room).rstrip() + "…", role))
            break
        kept.append((text, role))
        room -= size
    return tuple(kept)


def pad(line: StyledLine, width: int) -> StyledLine:
    """``line`` cut or filled with blanks to exactly ``width`` cells."""
    fitted = fit(line, width)
    return (*fitted, (" " * max(width - length(fitted), 0), Role.PLAIN))


def spread(
    left: StyledLine, right: StyledLine, width: int, fill: Span = (" ", Role.PLAIN)
) -> StyledLine:
    """``left`` and ``right`` at the two ends of ``width`` cells. ``left`` is cut first."""
    right = fit(right, width)
    left = fit(left, max(width - length(right) - 1, 0))
    gap = max(width - length(left) - length(right), 0)
    return (*left, (fill[0] * gap, fill[1]), *right)


def rule(title: str, right: StyledLine, width: int) -> StyledLine:
    """A heading: ``title``, a thin line, and ``right`` at the end of it."""
    end = ((" ", Role.PLAIN), *right) if right else ()
    return spread(((title, Role.TITLE), (" ", Role.PLAIN)), end, width, ("─", Role.RULE))


def paragraph(
    text: str, role: Role, width: int, *, indent: int = 0, limit: int = 4
) -> list[StyledLine]:
    """``text`` wrapped to ``width`` cells and at most ``limit`` lines."""
    room = max(width - indent, 8)
    lines = wrap(text, room, max_lines=limit, placeholder=" …")
    return [((" " * indent, Role.PLAIN), (line, role)) for line in lines]


def join(lines: Iterable[StyledLine], separator: Span) -> StyledLine:
    """The spans of all non-empty ``lines``, with ``separator`` between two of them."""
    spans: list[Span] = []
    for line in lines:
        if line:
            spans += [separator, *line] if spans else line
    return tuple(spans)
