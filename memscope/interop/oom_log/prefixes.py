"""Prefixes of launchers, rewritten so that every line names its writer in brackets.

pdsh (DeepSpeed's launcher) and clush write "HOST: text". stern writes "POD CONTAINER text" or
"POD › CONTAINER text", and with `--all-namespaces` "NAMESPACE POD CONTAINER text".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from memscope.interop.oom_log.lines import without_escapes
from memscope.interop.oom_log.search import Block, LogLine

_SAMPLE_LINES = 64
_SAMPLE_CHARACTERS = 1 << 15
# Words that programs count by ("step-3", "epoch.1"): a number behind them makes no name.
_COUNTED = (
    "step|epoch|iter|iteration|batch|round|phase|stage|layer|block|chunk|sample|cuda|device|version"
)


_LAUNCHER_POD = r"(\[pod/[\w./-]{1,400}\] )?"  # of the launcher, as kubectl writes it
_NOT_A_HOST = (
    r"(?![A-Za-z.]{1,80}(?:Error|Exception|Warning):)"
    rf"(?!(?:{_COUNTED}|rank)[.-]?\d)"
)
# Wherever a line stands by itself: a rank is right behind it.
_RANKED_HOST = re.compile(
    rf"{_LAUNCHER_POD}{_NOT_A_HOST}([A-Za-z\d][\w.-]{{0,252}}): (?=\[(?:rank|default)\d)"
)
# Any sentence may begin with a word and a colon: a host has an address, or a number in its name.
_HOST = re.compile(
    rf"{_LAUNCHER_POD}{_NOT_A_HOST}(\d{{1,3}}(?:\.\d{{1,3}}){{3}}"
    r"|(?=[A-Za-z.-]{0,252}\d)[A-Za-z][A-Za-z\d.-]{0,252}):(?: |$)"
)


class PdshHosts:
    """Finds hosts at the beginning of lines.

    A name is taken for a host if all lines of a log begin like this, or most and some repeat it.
    """

    def __init__(self) -> None:
        self._is_column = False

    def look_at(self, block: Block) -> None:
        """Learn from the first lines of ``block`` whether lines begin with hosts."""
        if self._is_column:
            return
        lines = _sample_lines(block)
        hosts = [match[2] for line in lines if (match := _HOST.match(line))]
        is_repeated = len(set(hosts)) < len(hosts) and 2 * len(hosts) > len(lines)
        self._is_column = is_repeated or 1 < len(hosts) == len(lines)

    def name_writer(self, line: LogLine) -> LogLine:
        """``line`` with its host in brackets, if it begins with one."""
        return _rewrite_line(line, self._rewrite)

    def _rewrite(self, line: str) -> str:
        text = without_escapes(line)
        match = _RANKED_HOST.match(text) or (_HOST.match(text) if self._is_column else None)
        if match is None:
            return line
        return f"{match[1] or ''}[host/{match[2]}] {text[match.end() :]}"


# A pod's name ends with an ordinal, or with what its controller draws; a counted word is none.
_POD = (
    rf"(?!(?:{_COUNTED}|gpu)-\d)"
    r"[a-z0-9][a-z0-9.-]{0,200}-(?:\d{1,5}|[a-f0-9]{8,10}-[a-z0-9]{5}|"
    r"[bcdf-hj-np-tv-xz2456789]{5})"
)
_CONTAINER = r"[a-z0-9][a-z0-9-]{0,62}"
_NAMESPACE = r"([a-z0-9][a-z0-9-]{0,62}) "
_POD_AND_CONTAINER = re.compile(rf"()({_POD}) ({_CONTAINER}) ")
_NAMESPACED_POD = re.compile(rf"{_NAMESPACE}({_POD}) ({_CONTAINER}) ")
# Wherever a line stands by itself: stern's own mark, or a rank right behind the container.
_MARKED_POD = re.compile(rf"(?:{_NAMESPACE})?([a-z0-9][a-z0-9.-]{{0,252}}) › ({_CONTAINER}) ")
_RANKED_POD = re.compile(
    rf"(?:{_NAMESPACE})?([\w.]{{1,80}}-[\w.-]{{1,160}}) ([\w.-]{{1,63}}) (?=\[(?:rank|default)\d)"
)


class SternPods:
    """Finds pods and containers at the beginning of lines.

    Two words are taken for a pod and its container only if most lines of a log begin like this and
    some of them repeat the container.
    """

    def __init__(self) -> None:
        self._columns: re.Pattern[str] | None = None

    def look_at(self, block: Block) -> None:
        """Learn from the first lines of ``block`` whether lines begin with pods."""
        if self._columns is not None:
            return
        lines = _sample_lines(block)
        # Namespaces may look like pods, and pods like containers: real containers differ least.
        containers = [
            (_containers(pattern, lines), pattern)
            for pattern in (_NAMESPACED_POD, _POD_AND_CONTAINER)
        ]
        found = [(len(names), pattern) for names, pattern in containers if names]
        self._columns = min(found, key=lambda each: each[0])[1] if found else None

    def name_writer(self, line: LogLine) -> LogLine:
        """``line`` with its pod written like `kubectl logs --prefix`, if it begins with one."""
        return _rewrite_line(line, self._rewrite)

    def _rewrite(self, line: str) -> str:
        text = without_escapes(line)
        match = _MARKED_POD.match(text) or _RANKED_POD.match(text)
        if match is None and self._columns is not None:
            match = self._columns.match(text)
        if match is None:
            return line
        namespace, pod, container = match.groups()
        place = f"{namespace}/{pod}" if namespace else pod
        return f"[pod/{place}/{container}] {text[match.end() :]}"


def _containers(pattern: re.Pattern[str], lines: Sequence[str]) -> set[str]:
    """Containers in ``lines`` by ``pattern``, none unless most lines match."""
    found = [match[3] for line in lines if (match := pattern.match(line))]
    names = set(found)
    return names if 2 * len(found) > len(lines) and len(names) < len(found) else set()


def _sample_lines(block: Block) -> list[str]:
    """The first non-empty lines of ``block``, without escapes."""
    text = block.text[block.start : block.start + _SAMPLE_CHARACTERS]
    lines = text.split("\n", _SAMPLE_LINES)[:_SAMPLE_LINES]
    return [without_escapes(line) for line in lines if line.strip()]


def _rewrite_line(line: LogLine, rewrite: Callable[[str], str]) -> LogLine:
    """``line`` and the one before it, rewritten. ``rewrite`` may return its text unchanged."""
    text = rewrite(line.text)
    if text is line.text:
        return line
    begin = line.before.rstrip("\n").rfind("\n") + 1
    return replace(line, text=text, before=line.before[:begin] + rewrite(line.before[begin:]))
