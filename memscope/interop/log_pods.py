"""Pods that stern writes before each line, as "POD CONTAINER text" or "POD › CONTAINER text"."""

from __future__ import annotations

import re
from dataclasses import replace

from memscope.interop.log_lines import without_escapes
from memscope.interop.log_search import Block, Line

SAMPLE_LINES = 64
SAMPLE_CHARACTERS = 1 << 15

# A pod's name ends with an ordinal, or with what its controller draws; a counted word is none.
_POD = (
    r"(?!(?:step|epoch|iter|iteration|batch|round|phase|stage|layer|block|chunk|sample|gpu|cuda"
    r"|device|version)-\d)[a-z0-9][a-z0-9.-]{0,200}-(?:\d{1,5}|[a-f0-9]{8,10}-[a-z0-9]{5}|"
    r"[bcdf-hj-np-tv-xz2456789]{5})"
)
_CONTAINER = r"[a-z0-9][a-z0-9-]{0,62}"
_UNMARKED = re.compile(rf"({_POD}) ({_CONTAINER}) ")
_MARKED = re.compile(rf"([a-z0-9][a-z0-9.-]{{0,252}}) › ({_CONTAINER}) ")


class SternPods:
    """Whether lines begin with a pod, and who wrote them.

    Any sentence may begin with two words like a pod and its container: they are these only in a
    log of which most lines begin so, some with the same container.
    """

    def __init__(self) -> None:
        self._is_on = False

    def look_at(self, block: Block) -> None:
        """Learn from the first lines of ``block`` whether pods stand before them."""
        if self._is_on:
            return
        text = block.text[block.start : block.start + SAMPLE_CHARACTERS]
        lines = [line for line in text.split("\n", SAMPLE_LINES)[:SAMPLE_LINES] if line.strip()]
        found = [match[2] for line in lines if (match := _match(_UNMARKED, line))]
        self._is_on = 2 * len(found) > len(lines) and len(set(found)) < len(found)

    def name_writer(self, line: Line) -> Line:
        """``line`` with its pod, where it begins with one, as `kubectl logs --prefix` writes it."""
        text = self._rewrite(line.text)
        if text is line.text:
            return line
        begin = line.before.rstrip("\n").rfind("\n") + 1
        last = self._rewrite(line.before[begin:])
        return replace(line, text=text, before=line.before[:begin] + last)

    def _rewrite(self, line: str) -> str:
        match = _match(_MARKED, line) or (_match(_UNMARKED, line) if self._is_on else None)
        if match is None:
            return line
        return f"[pod/{match[1]}/{match[2]}] {match.string[match.end() :]}"


def _match(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    return pattern.match(without_escapes(line))
