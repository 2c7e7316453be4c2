"""Searches logs block by block and looks only at lines that contain one of some words.

Memory stays constant and time linear: an endless line is cut, and each carriage return of a
progress bar ends a line.
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
    """A line, its number from 1, whether it contains a word, and the text before it."""

    text: str
    number: int
    has_word: bool
    before: str


class LogSearch:
    """The lines of ``stream`` that contain one of ``words``, or all lines while requested.

    Reads UTF-8, or UTF-16 if the stream begins with its mark. ``lines``: the count so far.
    ``words`` may change between two blocks.
    """

    def __init__(self, stream: BinaryIO, words: Sequence[str]) -> None:
        self._stream = stream
        self.words = list(words)
        self.lines = 0

    def blocks(self) -> Iterator[Block]:
        """The log in pieces. Each ends at the end of a line, unless the line is too long."""
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
    """A piece of a log: ``text`` from ``start``. The text before was in the last block."""

    def __init__(self, text: str, start: int, search: LogSearch) -> None:
        self.text = text
        self.start = start
        self._search = search
        self._found = {
            word: place for word in search.words if (place := text.find(word, start)) >= 0
        }

    def lines(self, wants_all: Callable[[], bool]) -> Iterator[LogLine]:
        """The lines in order. ``wants_all`` is asked before each line."""
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
        """The end of the line that begins at ``place``. A line that is too long is cut."""
        end = self.text.find("\n", place, place + LINE_CHARACTERS)
        return min(place + LINE_CHARACTERS, len(self.text)) if end < 0 else end

    def _next_word(self, place: int, end: int) -> int:
        """The place of some word between ``place`` and ``end``, else of the next one, else -1."""
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
