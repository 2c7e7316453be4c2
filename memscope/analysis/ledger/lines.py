"""Lines of a ledger: a tree whose lines are the sum of their parts."""

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
    """One line. ``reason`` says why ``bytes`` is None, or what a partial line does not include.

    ``is_rest``: the line is the remainder of the line above. Only such a line can be negative.
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
        """The lines below that have no parts. Their bytes add up to this line's bytes."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves


def absent(key: str, words: str, reason: str) -> LedgerLine:
    """A line whose bytes could not be measured."""
    return LedgerLine(key, words, None, Coverage.ABSENT, reason)


def read(key: str, words: str, size: int | None, reason: str, *, partial: str = "") -> LedgerLine:
    """The line of a reading, or an absent line with ``reason``. ``partial``: what it leaves out."""
    if size is None:
        return absent(key, words, reason)
    return LedgerLine(key, words, size, Coverage.PARTIAL if partial else Coverage.MEASURED, partial)


def divide(line: LedgerLine, parts: Sequence[LedgerLine], rest: LedgerLine) -> LedgerLine:
    """``line`` with ``parts`` and a last part ``rest`` that gets the remaining bytes.

    A rest without words is left out if no bytes remain.
    """
    if line.bytes is None:
        return line
    left = line.bytes - sum(part.bytes for part in parts if part.bytes is not None)
    rest = replace(rest, bytes=left, is_rest=True)
    return replace(line, parts=(*parts, rest) if left or rest.words else tuple(parts))
