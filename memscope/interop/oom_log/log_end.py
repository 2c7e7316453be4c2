"""The last line and the last error of a log."""

from __future__ import annotations

import re

from memscope.interop.oom_log.search import Block

LAST_LINE_CHARACTERS = 400

_ERROR_WORDS = (
    "Error",
    "Exception",
    "Interrupt",
    "Fault",
    "Exit",
    "FATAL",
    "CRITICAL",
    "panic:",
    "Segmentation",
    "Aborted",
    "Killed",
)
_ERROR = re.compile(
    r"(?:Error|Exception|Interrupt|Fault|SystemExit)(?::|\s*$)"
    r"|\b(?:Segmentation fault|FATAL|CRITICAL|panic:|Aborted|Killed)"
)
_MAX_ERRORS_TRIED = 40


class LogEnd:
    """The last line and the last error so far, "" if there is none."""

    def __init__(self) -> None:
        self.line = ""
        self.error = ""

    def note(self, block: Block) -> None:
        """Update both from ``block``."""
        text, start = block.text, block.start
        tail = text[start:].rstrip()[-LAST_LINE_CHARACTERS:] if start < len(text) else ""
        if tail:
            self.line = tail[tail.rfind("\n") + 1 :]
        self._note_error(text, start)

    def _note_error(self, text: str, start: int) -> None:
        places = {word: text.rfind(word, start) for word in _ERROR_WORDS}
        for _ in range(_MAX_ERRORS_TRIED):
            place = max(places.values())
            if place < 0:
                return
            begin = max(text.rfind("\n", start, place) + 1, start, place - LAST_LINE_CHARACTERS)
            stop = text.find("\n", place, place + LAST_LINE_CHARACTERS)
            line = text[begin : stop if stop >= 0 else place + LAST_LINE_CHARACTERS]
            if _ERROR.search(line):
                self.error = line[:LAST_LINE_CHARACTERS]
                return
            for word, last in places.items():
                if last >= begin:
                    places[word] = text.rfind(word, start, begin)
