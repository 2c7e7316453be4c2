"""Log lines without the prefixes of loggers and launchers and without terminal escapes."""

from __future__ import annotations

import re
from functools import lru_cache

_ESCAPES = re.compile(r"(?:\x1b|#033)\[[0-9;?]{0,32}[ -/]{0,4}[@-~]|\x1b\][^\x07\x1b]{0,256}\x07")
_UNPRINTED = re.compile(r"[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\ufeff\ufffd]+|\\[nrt]")

# Who wrote a line: a rank, a worker, a container.
_SOURCE = (
    r"\[(?:rank|default)\d{1,6}\]:?"
    r"|\[\d{1,6},\d{1,6}\]<std(?:err|out)>:?"
    r"|\([^()]{0,60}pid=[^()]{0,60}\)"
    r"|\[pod/(?:[\w.-]{1,63}/)?[\w.-]{1,253}/[\w.-]{1,63}\]"
    r"|\[host/[\w.-]{1,253}\]"
    r"|[\w.\-\[\]]{1,60}\s{1,40}\|"
    r"|rank\s?\d{1,6}:|\d{1,6}:(?=\s)"
)
# What a logger puts before each line.
_NOISE = (
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d[^\s\]|]{0,30}(?:\s(?:TP|DP|PP|EP)\d[^\]]{0,30})?\]?"
    r"|\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"|\[[IWEF]\d{1,8} [\d:.]{1,24} [\w./-]{1,80}:\d{1,7}\]"
    r"|[DIWEF]\d{4} [\d:.]{1,24}\s{1,8}\d{1,10} [\w./-]{1,80}:\d{1,7}\]"
    r"|\[?[\w./-]{1,80}\.(?:py|cpp|cc|h):\d{1,7}\]?"
    r"|\[?\b(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b\]?:?"
    r"|std(?:err|out) [FP]\b|[#>|*-](?=\s)"
)
_PREFIX = re.compile(rf"\s{{0,80}}(?:(?P<source>{_SOURCE})|{_NOISE})\s{{0,80}}")
_MAX_PREFIXES = 12


def split_prefix(line: str) -> tuple[str, str]:
    """Who wrote ``line`` ("" if it does not say), and the line without prefixes."""
    source, _, text = _split(line)
    return source, text


def prefix_of(line: str) -> str:
    """Everything that loggers and launchers put before ``line``."""
    return _split(line)[1]


@lru_cache(maxsize=4)  # whoever looks at a line asks several times
def _split(line: str) -> tuple[str, str, str]:
    line = without_escapes(line)
    source, start = "", 0
    for _ in range(_MAX_PREFIXES):
        match = _PREFIX.match(line, start)
        if match is None:
            break
        source += match["source"] or ""
        start = match.end()
    return source, line[:start], line[start:]


def without_escapes(line: str) -> str:
    """``line`` without colours and cursor movements."""
    return _ESCAPES.sub("", line) if "\x1b" in line or "#033" in line else line


def squeeze(text: str) -> str:
    """``text`` without white space and control characters.

    Terminals, pagers and issue trackers break messages anywhere, even inside a word or a number.
    """
    squeezed = "".join(text.split())
    if "\\" in squeezed or not squeezed.isprintable() or "\ufffd" in squeezed:
        return _UNPRINTED.sub("", squeezed)
    return squeezed


def plain(text: str, limit: int = 300) -> str:
    """``text`` safe to show: on one line, without escapes and control characters."""
    shown = without_escapes(text)
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else " " for c in shown)
    return " ".join(shown.split())[:limit]
