"""Hosts that pdsh (DeepSpeed's launcher) or clush writes before each line, as "HOST: text"."""

from __future__ import annotations

import re

from memscope.interop.oom_log.columns import COUNTED, rewrite_line, sample_lines
from memscope.interop.oom_log.lines import without_escapes
from memscope.interop.oom_log.search import Block, Line

_POD = r"(\[pod/[\w./-]{1,400}\] )?"  # of the launcher, as kubectl writes it
_NO_HOST = (
    r"(?![A-Za-z.]{1,80}(?:Error|Exception|Warning):)"
    rf"(?!(?:{COUNTED}|rank)[.-]?\d)"
)
# Wherever a line stands by itself: a rank is right behind it.
_RANKED = re.compile(rf"{_POD}{_NO_HOST}([A-Za-z\d][\w.-]{{0,252}}): (?=\[(?:rank|default)\d)")
# Any sentence may begin with a word and a colon: a host has an address, or a number in its name.
_PLAIN = re.compile(
    rf"{_POD}{_NO_HOST}(\d{{1,3}}(?:\.\d{{1,3}}){{3}}"
    r"|(?=[A-Za-z.-]{0,252}\d)[A-Za-z][A-Za-z\d.-]{0,252}):(?: |$)"
)


class PdshHosts:
    """Whether lines begin with a host, and which one wrote them.

    They do where most lines of a log begin so, some with the same host; or all of them.
    """

    def __init__(self) -> None:
        self._is_column = False

    def look_at(self, block: Block) -> None:
        """Learn from the first lines of ``block`` whether hosts stand before them."""
        if self._is_column:
            return
        lines = sample_lines(block)
        hosts = [match[2] for line in lines if (match := _PLAIN.match(line))]
        is_repeated = len(set(hosts)) < len(hosts) and 2 * len(hosts) > len(lines)
        self._is_column = is_repeated or 1 < len(hosts) == len(lines)

    def name_writer(self, line: Line) -> Line:
        """``line`` with its host in brackets, where it begins with one."""
        return rewrite_line(line, self._rewrite)

    def _rewrite(self, line: str) -> str:
        text = without_escapes(line)
        match = _RANKED.match(text) or (_PLAIN.match(text) if self._is_column else None)
        if match is None:
            return line
        return f"{match[1] or ''}[host/{match[2]}] {text[match.end() :]}"
