"""Searches a log for errors about memory, in one pass and with constant memory.

A message may be wrapped anywhere, have a rank's prefix on each line, and be mixed with the lines of
other ranks. So each writer's lines are collected separately and compared without white space.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import BinaryIO

from memscope.interop.oom_log import context as log_context
from memscope.interop.oom_log.context import LogContext, Server
from memscope.interop.oom_log.formats import registry
from memscope.interop.oom_log.formats.message import Message, Refusal
from memscope.interop.oom_log.formats.registry import strong_starts, vague_starts
from memscope.interop.oom_log.formats.torch_message import TorchKind
from memscope.interop.oom_log.lines import plain, prefix_of, split_prefix, squeeze
from memscope.interop.oom_log.log_end import LogEnd
from memscope.interop.oom_log.open_message import MAX_MESSAGE_CHARACTERS, Begun, OpenMessage
from memscope.interop.oom_log.prefixes import PdshHosts, SternPods
from memscope.interop.oom_log.repeats import LogRepeats
from memscope.interop.oom_log.search import LogLine, LogSearch
from memscope.interop.oom_log.time import Stamp, read_stamp
from memscope.interop.oom_log.writer import Writer, find_writer

MAX_OPEN = 64
MAX_KEPT = 1 << 14

_TAIL_CHARACTERS = 120
_BACKEND_CHARACTERS = 8  # of the word before a message, which may stand on the line before
_MAX_RECENT = 32
_LINES_TO_OTHER_HALF = 8
_QUOTED_CHARACTERS = 200

_ROOT_CAUSE = "(first observed failure)"  # of torchrun's summary, which goes on with its rank
_WORDS = (*registry.WORDS, *log_context.WORDS, _ROOT_CAUSE, "(local_rank:")
# What need not be looked for once a server is known.
_KNOWN_WORDS = {
    Server.SGLANG: ("sglang", "vllm", "EngineCore"),
    Server.VLLM: ("vllm", "EngineCore"),
}
_RANK = re.compile(r"rank:(\d{1,6})\(local_rank:")
_SUSPICIOUS = re.compile("|".join(map(re.escape, registry.WORDS)))


@dataclass(frozen=True, slots=True)
class Finding:
    """A message, its first line (from 1), and what the log had said until then.

    ``quote``: that line, if the message has no numbers, else "". ``stamp``: when it was written,
    None if the line does not say.
    """

    message: Message
    line: int
    writer: Writer
    context: LogContext
    quote: str = ""
    stamp: Stamp | None = None


@dataclass(slots=True)
class LogFindings:
    """What a log says about memory.

    ``findings``: the last ``MAX_KEPT`` of ``count`` messages, in order of lines. A message that a
    process repeats counts once. ``retries``: warnings that an allocation failed once and was tried
    again. ``first_ranks``: the ranks that torchrun saw fail first, one on each of its hosts.
    """

    findings: list[Finding] = field(default_factory=list)
    count: int = 0
    retries: int = 0
    last_retry: Finding | None = None
    first_ranks: set[str] = field(default_factory=set)
    lines: int = 0
    last_error: str = ""
    last_line: str = ""
    context: LogContext = field(default_factory=LogContext)

    @property
    def is_whole(self) -> bool:
        """Whether ``findings`` holds all messages."""
        return self.count == len(self.findings)

    @property
    def servers(self) -> set[Server]:
        """Servers whose refusals the log holds."""
        messages = (finding.message for finding in self.findings)
        return {message.server for message in messages if isinstance(message, Refusal)}


def read_log(stream: BinaryIO) -> LogFindings:
    """Read what the log in ``stream`` says about memory."""
    reader = _Reader()
    search, end = LogSearch(stream, _WORDS), LogEnd()
    for block in search.blocks():
        for names in reader.names:
            names.look_at(block)
        for line in block.lines(reader.is_reading_message):
            reader.add(line)
        end.note(block)
        search.words = reader.words()
    return reader.finish(search.lines, end)


class _Reader:
    def __init__(self) -> None:
        self.names = (SternPods(), PdshHosts())
        self._findings = LogFindings()
        self._kept: deque[Finding] = deque(maxlen=MAX_KEPT)
        self._open: dict[str, OpenMessage] = {}
        self._deadline = 0
        self._halves: dict[str, tuple[str, int]] = {}
        self._recent: dict[str, Message | None] = {}
        self._repeats = LogRepeats()
        self._is_root_cause = False
        self._context = LogContext()  # shared by the messages before which it was the same

    def words(self) -> list[str]:
        """The words still worth searching: a server's name is on every line of a traceback."""
        known = self._findings.context.servers
        needless = {word for server in known for word in _KNOWN_WORDS[server]}
        return [word for word in _WORDS if word not in needless]

    def is_reading_message(self) -> bool:
        """Whether the next line may belong to a message."""
        return bool(self._open or self._halves)

    def add(self, line: LogLine) -> None:
        """Look at one line."""
        for names in self.names:
            line = names.name_writer(line)
        source, text = split_prefix(line.text)
        squeezed = squeeze(text)
        if line.has_word:
            self._findings.context.add(text, squeezed)
            self._findings.context.add_server(source)
            self._note_root_cause(squeezed)
        if self._open and line.number > self._deadline:
            self._close_old(line.number)
        begun = self._find_start(source, squeezed, line)
        if begun is None:
            self._extend(source, squeezed)
        else:
            self._extend(source, begun.text[: begun.starts[0][0]])
            self._close(source)
            self._begin(source, begun, line)

    def _note_root_cause(self, squeezed: str) -> None:
        if "(firstobservedfailure)" in squeezed:
            self._is_root_cause = True
        elif self._is_root_cause and (rank := _RANK.search(squeezed)):
            self._findings.first_ranks.add(f"rank {int(rank[1])}")
            self._is_root_cause = False

    def finish(self, lines: int, end: LogEnd) -> LogFindings:
        """The findings, after all ``lines`` were read."""
        for source in list(self._open):
            self._close(source)
        self._findings.findings = sorted(self._kept, key=lambda finding: finding.line)
        self._findings.lines = lines
        self._findings.last_error, self._findings.last_line = end.error, end.line
        return self._findings

    def _find_start(self, source: str, squeezed: str, line: LogLine) -> Begun | None:
        """The messages that begin here, or on the line before."""
        half = self._take_half(source, line.number)
        is_suspicious = line.has_word and _SUSPICIOUS.search(line.text) is not None
        if not is_suspicious and not half:
            return None
        starts = strong_starts(squeezed)
        open_ = self._open.get(source)
        if open_ is not None and open_.is_vague:
            return None  # it goes on here, and may say more
        if open_ is not None or (starts and starts[0][0] > _BACKEND_CHARACTERS):
            return Begun(squeezed, starts) if starts else None
        tail = half or _tail(source, line.before)
        earlier = strong_starts(tail + squeezed) if tail else ()
        if earlier and earlier[0][0] < len(tail):
            return Begun(tail + squeezed, earlier)
        starts = starts or vague_starts(squeezed)[:1]
        if starts:
            return Begun(squeezed, starts)
        if is_suspicious and len(self._halves) < MAX_OPEN:
            rest = squeezed[-_TAIL_CHARACTERS:]
            self._halves[source] = rest, line.number + _LINES_TO_OTHER_HALF
        return None

    def _take_half(self, source: str, number: int) -> str:
        """The end of this writer's line before, if a message may begin there."""
        if not self._halves:
            return ""
        half = self._halves.pop(source, ("", 0))[0]
        for old in [key for key, (_, deadline) in self._halves.items() if deadline < number]:
            del self._halves[old]
        return half

    def _begin(self, source: str, begun: Begun, line: LogLine) -> None:
        """Open a message. If its line holds several, all but the last one are complete."""
        number, prefix = line.number, prefix_of(line.text)
        writer, stamp = find_writer(prefix), read_stamp(prefix)
        while len(self._open) >= MAX_OPEN:
            self._close(next(iter(self._open)))
        if self._context != self._findings.context:
            self._context = self._findings.context.copy()
        text, starts = begun.text, begun.starts
        ends = [*(begin for begin, _ in starts[1:]), len(text)]
        for (begin, kind), end in zip(starts, ends, strict=True):
            self._close(source)
            message = OpenMessage(
                kind, number, source, text[begin:end], writer, self._context, stamp
            )
            message.quote = _quote(split_prefix(line.text)[1]) if message.is_vague else ""
            self._open[source] = message
            self._deadline = min(self._deadline or message.last_line, message.last_line)
        self._settle(source, number)

    def _extend(self, source: str, text: str) -> None:
        message = self._open.get(source)
        if message is not None:
            message.extend(text)
            self._settle(source, message.last_line)

    def _settle(self, source: str, number: int) -> None:
        """Close a message that is long enough, and wait for fewer lines once its end was seen."""
        message = self._open[source]
        if message.is_long:
            self._close(source)
        else:
            message.note_end(number)
            self._deadline = min(self._deadline, message.last_line)

    def _close_old(self, number: int) -> None:
        last = {source: message.last_line for source, message in self._open.items()}
        for source in [source for source, line in last.items() if line < number]:
            self._close(source)
            del last[source]
        self._deadline = min(last.values(), default=0)

    def _close(self, source: str) -> None:
        message = self._open.pop(source, None)
        if message is None:
            return
        parsed = self._parse(message.kind, message.text[:MAX_MESSAGE_CHARACTERS])
        if parsed is not None:
            line, writer, context = message.line, message.writer, message.context
            self._keep(Finding(parsed, line, writer, context, message.quote, message.stamp))

    def _parse(self, kind: StrEnum, text: str) -> Message | None:
        """The message in ``text``; programs print the same one again and again."""
        if text not in self._recent:
            if len(self._recent) >= _MAX_RECENT:
                self._recent.clear()
            self._recent[text] = registry.parse(kind, text)
        return self._recent[text]

    def _keep(self, finding: Finding) -> None:
        findings = self._findings
        if finding.message.kind is TorchKind.RETRY:
            findings.retries += 1
            findings.last_retry = finding
        elif not self._repeats.is_repeat(finding.message, finding.writer):
            findings.count += 1
            self._kept.append(finding)


@lru_cache(maxsize=32)
def _quote(text: str) -> str:
    """The part of ``text`` around the first suspicious word."""
    word = _SUSPICIOUS.search(text)
    begin = max(word.start() - _QUOTED_CHARACTERS // 2, 0) if word else 0
    return plain(text[begin : begin + _QUOTED_CHARACTERS])


def _tail(source: str, before: str) -> str:
    """The end of the line before, if the same writer wrote it."""
    lines = before.rstrip("\n").rsplit("\n", 1)
    writer, text = split_prefix(lines[-1])
    return squeeze(text)[-_TAIL_CHARACTERS:] if writer in ("", source) else ""
