"""Pods that stern writes before each line, as "POD CONTAINER text" or "POD › CONTAINER text".

Of several namespaces (`stern --all-namespaces`) each line begins with its own: "NAMESPACE POD ...".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memscope.interop.oom_log.columns import COUNTED, rewrite_line, sample_lines
from memscope.interop.oom_log.lines import without_escapes
from memscope.interop.oom_log.search import Block, Line

# A pod's name ends with an ordinal, or with what its controller draws; a counted word is none.
_POD = (
    rf"(?!(?:{COUNTED}|gpu)-\d)"
    r"[a-z0-9][a-z0-9.-]{0,200}-(?:\d{1,5}|[a-f0-9]{8,10}-[a-z0-9]{5}|"
    r"[bcdf-hj-np-tv-xz2456789]{5})"
)
_CONTAINER = r"[a-z0-9][a-z0-9-]{0,62}"
_NAMESPACE = r"([a-z0-9][a-z0-9-]{0,62}) "
_PLAIN = re.compile(rf"()({_POD}) ({_CONTAINER}) ")
_NAMESPACED = re.compile(rf"{_NAMESPACE}({_POD}) ({_CONTAINER}) ")
# Wherever a line stands by itself: stern's own mark, or a rank right behind the container.
_MARKED = re.compile(rf"(?:{_NAMESPACE})?([a-z0-9][a-z0-9.-]{{0,252}}) › ({_CONTAINER}) ")
_RANKED = re.compile(
    rf"(?:{_NAMESPACE})?([\w.]{{1,80}}-[\w.-]{{1,160}}) ([\w.-]{{1,63}}) (?=\[(?:rank|default)\d)"
)


class SternPods:
    """Whether lines begin with a pod, and who wrote them.

    Any sentence may begin with two words like a pod and its container: they are these only in a
    log of which most lines begin so, some with the same container.
    """

    def __init__(self) -> None:
        self._columns: re.Pattern[str] | None = None

    def look_at(self, block: Block) -> None:
        """Learn from the first lines of ``block`` whether pods stand before them."""
        if self._columns is not None:
            return
        lines = sample_lines(block)
        # Namespaces may look like pods, and pods like containers: real containers differ least.
        containers = [(_containers(pattern, lines), pattern) for pattern in (_NAMESPACED, _PLAIN)]
        found = [(len(names), pattern) for names, pattern in containers if names]
        self._columns = min(found, key=lambda each: each[0])[1] if found else None

    def name_writer(self, line: Line) -> Line:
        """``line`` with its pod, where it begins with one, as `kubectl logs --prefix` writes it."""
        return rewrite_line(line, self._rewrite)

    def _rewrite(self, line: str) -> str:
        text = without_escapes(line)
        match = _MARKED.match(text) or _RANKED.match(text)
        if match is None and self._columns is not None:
            match = self._columns.match(text)
        if match is None:
            return line
        namespace, pod, container = match.groups()
        place = f"{namespace}/{pod}" if namespace else pod
        return f"[pod/{place}/{container}] {text[match.end() :]}"


def _containers(pattern: re.Pattern[str], lines: Sequence[str]) -> set[str]:
    """Those that ``lines`` name by ``pattern``; none where it is not the form of most lines."""
    found = [match[3] for line in lines if (match := pattern.match(line))]
    names = set(found)
    return names if 2 * len(found) > len(lines) and len(names) < len(found) else set()
