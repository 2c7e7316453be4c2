"""Verdicts on limits, the pressing ones first, with what to do about them."""

from __future__ import annotations

from memscope.analysis.limits.limits import Verdict
from memscope.analysis.summary.no_device import defaults_without_device, no_device_words
from memscope.text import clean
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.line import Line, paragraph, rule, spread
from memscope_dashboards.tui.widgets.lines import LinesWidget
from memscope_dashboards.tui.widgets.masthead import pressing

LOOKS = {
    "fail": ("✗", "fail"),
    "warn": ("!", "warn"),
    "pass": ("✓", "pass"),
    "not measured": ("?", "dim"),
    "not applicable": ("–", "dim"),
}
ORDER = ("fail", "warn", "pass", "not measured", "not applicable")
REASONED = ("fail", "warn", "not measured")  # where there is room; else the first two
SHORT = {"not applicable": "n/a"}


class Verdicts(LinesWidget):
    """As many verdicts as fit: what is judged before what is not.

    Of default limits on a device, where none is recorded, one line says how many there are.
    """

    with_reasons: tuple[str, ...] = REASONED[:2]

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Line]:
        """See the class."""
        if snapshot.summary is None:
            return [rule("Verdicts", (), width)]
        absent = defaults_without_device(snapshot.summary)
        possible = [each for each in snapshot.summary.verdicts if each not in absent]
        verdicts = sorted(possible, key=lambda each: ORDER.index(each.verdict))
        lines = [rule("Verdicts", tally(verdicts), width)]
        alarms = pressing(snapshot)
        notes = [each.text for each in snapshot.summary.sentences if each not in alarms]
        urgent = [each for each in verdicts if each.verdict in ("fail", "warn")]
        for verdict in urgent:
            lines += self._verdict_lines(verdict, width)
        for note in notes:
            lines += note_lines(note, width)
        for verdict in verdicts[len(urgent) :]:
            lines += self._verdict_lines(verdict, width)
        lines += paragraph(no_device_words(snapshot.summary), "dim", width)
        return cut(lines, height, width) if height else lines

    def _verdict_lines(self, verdict: Verdict, width: int) -> list[Line]:
        has_reason = verdict.verdict in self.with_reasons
        return [verdict_line(verdict, width), *(reasons(verdict, width) if has_reason else ())]


def tally(verdicts: list[Verdict]) -> Line:
    """How many verdicts of each sort."""
    spans: list[tuple[str, str]] = []
    for word, (glyph, role) in LOOKS.items():
        count = sum(verdict.verdict == word for verdict in verdicts)
        if count:
            spans += [(f"{glyph} {count} ", role), (SHORT.get(word, word), "dim"), ("  ", "")]
    return tuple(spans[:-1])


def verdict_line(verdict: Verdict, width: int) -> Line:
    """Verdict, limit and actual."""
    glyph, role = LOOKS[verdict.verdict]
    if verdict.value is None:
        left: Line = ((f"{glyph} {clean(verdict.limit, 120)}", "dim"),)
        return spread(left, ((verdict.verdict, "dim"),), width)
    left = ((f"{glyph} {verdict.verdict:<5}", role), (clean(verdict.limit, 120), "text"))
    return spread(left, ((verdict.brief, role),), width)


def reasons(verdict: Verdict, width: int) -> list[Line]:
    """Why it is so and what to do about it."""
    return [
        line
        for text in (verdict.reason, verdict.advice)
        if text
        for line in paragraph(clean(text, 400), "dim", width, indent=7 if verdict.advice else 2)
    ]


def note_lines(note: str, width: int) -> list[Line]:
    """One sentence of the summary."""
    first, *rest = paragraph(clean(note, 400), "text", width, indent=2) or [()]
    return [(("› ", "title"), *first[1:]), *rest]


def cut(lines: list[Line], height: int, width: int) -> list[Line]:
    """The first lines, and how to see the others."""
    if len(lines) <= height:
        return lines
    hint: Line = (("… more with ", "dim"), ("v", "key"))
    return [*lines[: height - 1], spread((), hint, width)] if height > 1 else lines[:height]
