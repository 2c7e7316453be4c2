"""Lines of a ledger: a tree in which each line is the sum of those below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

MEASURED, PARTIAL, ABSENT = "measured", "partial", "not measurable"


@dataclass(frozen=True, slots=True)
class Line:
    """``bytes`` None where nobody told: then ``reason`` says why, as it does what partial means.

    ``is_rest``: what the others leave of the line above, and so the only one that may be negative.
    """

    key: str
    words: str
    bytes: int | None
    coverage: str = MEASURED
    reason: str = ""
    parts: tuple[Line, ...] = ()
    is_rest: bool = False

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Line]]:
        """This line and all below it, each with its depth."""
        yield depth, self
        for part in self.parts:
            yield from part.walk(depth + 1)

    @property
    def leaves(self) -> Iterator[Line]:
        """The lines with bytes that none below divides: they add up to this one."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves


def absent(key: str, words: str, reason: str) -> Line:
    """A line that nobody told of."""
    return Line(key, words, None, ABSENT, reason)


def read(key: str, words: str, size: int | None, reason: str, *, partial: str = "") -> Line:
    """A reading, or why there is none. ``partial``: what it is short of."""
    if size is None:
        return absent(key, words, reason)
    return Line(key, words, size, PARTIAL if partial else MEASURED, partial)


def divide(line: Line, parts: Sequence[Line], rest: Line) -> Line:
    """``line`` with its parts and what they leave of it, whose own bytes do not count.

    A rest of zero that is no line of interest (without words) is left out.
    """
    if line.bytes is None:
        return line
    left = line.bytes - sum(part.bytes for part in parts if part.bytes is not None)
    rest = replace(rest, bytes=left, is_rest=True)
    return replace(line, parts=(*parts, rest) if left or rest.words else tuple(parts))
