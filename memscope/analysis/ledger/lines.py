"""Lines of a ledger: a tree in which each line is the sum of those below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class Coverage(StrEnum):
    """How much of a line's bytes was measured."""

    MEASURED = "measured"
    PARTIAL = "partial"
    ABSENT = "not measurable"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One line. ``reason`` says why ``bytes`` is None, or what a partial line lacks.

    ``is_rest``: what the line above has beyond its other parts. Only such a line may be negative.
    """

    key: str
    words: str
    bytes: int | None
    coverage: Coverage = Coverage.MEASURED
    reason: str = ""
    parts: tuple[LedgerLine, ...] = ()
    is_rest: bool = False

    def walk(self, depth: int = 0) -> Iterator[tuple[int, LedgerLine]]:
        """This line and every line below it, with its depth."""
        yield depth, self
        for part in self.parts:
            yield from part.walk(depth + 1)

    @property
    def leaves(self) -> Iterator[LedgerLine]:
        """The lines below that have no parts: their bytes add up to this line's."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves


def absent(key: str, words: str, reason: str) -> LedgerLine:
    """A line whose bytes could not be measured."""
    return LedgerLine(key, words, None, Coverage.ABSENT, reason)


def read(key: str, words: str, size: int | None, reason: str, *, partial: str = "") -> LedgerLine:
    """A line of a reading; if there is none, ``reason`` says why. ``partial``: what it lacks."""
    if size is None:
        return absent(key, words, reason)
    return LedgerLine(key, words, size, Coverage.PARTIAL if partial else Coverage.MEASURED, partial)


def divide(line: LedgerLine, parts: Sequence[LedgerLine], rest: LedgerLine) -> LedgerLine:
    """``line`` with ``parts`` and a last part, ``rest``, that gets the bytes left over.

    If nothing is left over, a rest without words is left out.
    """
    if line.bytes is None:
        return line
    left = line.bytes - sum(part.bytes for part in parts if part.bytes is not None)
    rest = replace(rest, bytes=left, is_rest=True)
    return replace(line, parts=(*parts, rest) if left or rest.words else tuple(parts))
