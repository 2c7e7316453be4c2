"""A message of a log while its lines are being read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats import registry
from memscope.interop.oom_log.time import Stamp
from memscope.interop.oom_log.writer import Writer

MAX_MESSAGE_CHARACTERS = 2000

_LINES_BETWEEN = 8  # for each line of a named writer: lines of others in between
_LINES_AFTER_END = 5


@dataclass(frozen=True, slots=True)
class Begun:
    """Place and kind of the messages that begin in ``text``, one or more."""

    text: str
    starts: tuple[tuple[int, StrEnum], ...]


@dataclass(slots=True)
class OpenMessage:
    """The text read so far. ``source``: the prefix of its lines. ``last_line``: read until here."""

    kind: StrEnum
    line: int
    source: str
    text: str
    writer: Writer
    context: LogContext
    stamp: Stamp | None
    quote: str = ""
    last_line: int = field(init=False)

    def __post_init__(self) -> None:
        self.last_line = self.line + self._most_lines

    @property
    def is_vague(self) -> bool:
        """Whether it says only that memory ran out."""
        return registry.is_vague(self.kind)

    @property
    def is_long(self) -> bool:
        """Whether nothing more belongs to it."""
        return len(self.text) > MAX_MESSAGE_CHARACTERS or "Traceback(" in self.text

    def extend(self, text: str) -> None:
        """Add ``text``. A vague message may turn into a more detailed one."""
        self.text += text
        starts = registry.strong_starts(self.text) if self.is_vague else ()
        if starts:
            self.kind, self.text = starts[0][1], self.text[starts[0][0] :]
            self.last_line = self.line + self._most_lines

    def note_end(self, number: int) -> None:
        """Wait for fewer lines if the end was seen by line ``number``."""
        if registry.has_end(self.kind, self.text):
            self.last_line = min(self.last_line, number + _LINES_AFTER_END)

    @property
    def _most_lines(self) -> int:
        return registry.max_lines(self.kind) * (_LINES_BETWEEN if self.source else 1)
