"""Logs searched block by block: of gigabytes of lines only those are looked at that hold a word.

Memory stays flat and time linear, whatever the lines are: a line without an end is cut, a progress
bar that only returns counts as lines.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

BLOCK_BYTES = 1 << 20
LINE_CHARACTERS = 1 << 14
BEFORE_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line, its number from 1 on, whether it holds a word looked for, and what is before it."""

    text: str
    number: int
    has_word: bool
    before: str


class LogSearch:
    """The lines of ``stream`` that hold one of ``words``, and all lines while they are wanted.

    UTF-8, or UTF-16 where the stream begins with its mark. ``lines``: how many there were so far.
    ``words`` may be changed between two blocks.
    """

    def __init__(self, stream: BinaryIO, words: Sequence[str]) -> None:
        self._stream = stream
        self.words = list(words)
        self.lines = 0

    def blocks(self) -> Iterator[Block]:
        """The log in pieces that end with a line's end, but for lines too long."""
        data = self._stream.read(BLOCK_BYTES)
        encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        before = rest = ""
        while True:
            text = rest + decoder.decode(data, not data).replace("\r", "\n")
            end = text.rfind("\n") + 1 if data else len(text)
            if len(text) - end > LINE_CHARACTERS:
                end = len(text)
            if end:
                yield Block(before + text[:end], len(before), self)
                before = text[max(end - BEFORE_CHARACTERS, 0) : end]
            if not data:
                return
            rest = text[end:]
            data = self._stream.read(BLOCK_BYTES)


class Block:
    """A piece of a log: ``text`` from ``start`` on; what is before has been seen."""

    def __init__(self, text: str, start: int, search: LogSearch) -> None:
        self.text = text
        self.start = start
        self._search = search
        self._found = {
            word: place for word in search.words if (place := text.find(word, start)) >= 0
        }

    def lines(self, wants_all: Callable[[], bool]) -> Iterator[LogLine]:
        """Its lines in order; asks before each one whether the next is wanted as well."""
        text, size, place, counted = self.text, len(self.text), self.start, self.start
        while place < size:
            end = self._end(place)
            is_long = end - place > LINE_CHARACTERS // 2  # its first word says where it is cut
            word = self._next_word(place, place if is_long else end)
            if not wants_all():
                if word < 0:
                    break
                place = max(text.rfind("\n", place, word) + 1, place, word - LINE_CHARACTERS // 2)
                end = self._end(place)
            self._search.lines += text.count("\n", counted, place)
            counted = place
            yield LogLine(
                text[place:end],
                self._search.lines + 1,
                place <= word < end,
                text[max(place - BEFORE_CHARACTERS, 0) : place],
            )
            place = end + (text[end : end + 1] == "\n")
        self._search.lines += text.count("\n", counted, size)

    def _end(self, place: int) -> int:
        """Where the line ends that begins at ``place``; one too long is cut."""
        end = self.text.find("\n", place, place + LINE_CHARACTERS)
        return min(place + LINE_CHARACTERS, len(self.text)) if end < 0 else end

    def _next_word(self, place: int, end: int) -> int:
        """Where a word begins at ``place`` or after it: any before ``end``, else the next one.

        -1 where there is none.
        """
        nearest = -1
        for word, found in list(self._found.items()):
            if found < place:
                found = self.text.find(word, place)
                if found < 0:
                    del self._found[word]
                    continue
                self._found[word] = found
            if found < end:
                return found
            if nearest < 0 or found < nearest:
                nearest = found
        return nearest


class WordPattern:
    """A pattern that is searched for only in text with one of its ``words``.

    Every match must contain one of them. Finding a word takes a fiftieth of a pattern's time.
    """

    __slots__ = ("_pattern", "words")

    def __init__(self, pattern: str, *words: str) -> None:
        self._pattern = re.compile(pattern)
        self.words = words

    def search(self, text: str) -> re.Match[str] | None:
        """The first match."""
        return self._pattern.search(text) if has_word(text, self.words) else None

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """All matches, one after the other."""
        return self._pattern.finditer(text) if has_word(text, self.words) else iter(())


def has_word(text: str, words: Iterable[str]) -> bool:
    """Whether one of ``words`` is in ``text``."""
    return any(map(text.__contains__, words))
