"""Verdicts on limits, problems first, with advice."""

from __future__ import annotations

from memscope.analysis.limits.limits import Outcome, Verdict
from memscope.analysis.summary.no_device import defaults_without_device, no_device_words
from memscope.analysis.summary.sentence import Sentence, Severity
from memscope.text import clean
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.palette import Role
from memscope_dashboards.tui.styled_line import Span, StyledLine, paragraph, rule, spread
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget
from memscope_dashboards.tui.widgets.masthead import pressing

LOOKS = {
    Outcome.FAIL: ("✗", Role.FAIL),
    Outcome.WARN: ("!", Role.WARN),
    Outcome.PASS: ("✓", Role.PASS),
    Outcome.NOT_MEASURED: ("?", Role.DIM),
    Outcome.NOT_APPLICABLE: ("–", Role.DIM),
}
ORDER = tuple(LOOKS)
PRESSING = (Outcome.FAIL, Outcome.WARN)
REASONED = (*PRESSING, Outcome.NOT_MEASURED)  # if there is room, else PRESSING alone
SHORT = {Outcome.NOT_APPLICABLE: "n/a"}
NOTE_LOOKS = {
    Severity.ALARM: ("!", Role.FAIL),
    Severity.WARNING: ("!", Role.WARN),
    Severity.NOTE: ("›", Role.TITLE),
}


class Verdicts(LinesWidget):
    """As many verdicts as fit, judged ones first.

    If no device was recorded, one line counts the default limits that need one.
    """

    with_reasons: tuple[Outcome, ...] = PRESSING

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[StyledLine]:
        """See the class."""
        if snapshot.summary is None:
            return [rule("Verdicts", (), width)]
        absent = defaults_without_device(snapshot.summary)
        possible = [each for each in snapshot.summary.verdicts if each not in absent]
        verdicts = sorted(possible, key=lambda each: ORDER.index(each.verdict))
        lines = [rule("Verdicts", tally(verdicts), width)]
        alarms = pressing(snapshot)
        notes = [each for each in snapshot.summary.sentences if each not in alarms]
        urgent = [each for each in verdicts if each.verdict in PRESSING]
        for verdict in urgent:
            lines += self._verdict_lines(verdict, width)
        for note in notes:
            lines += note_lines(note, width)
        for verdict in verdicts[len(urgent) :]:
            lines += self._verdict_lines(verdict, width)
        lines += paragraph(no_device_words(snapshot.summary), Role.DIM, width)
        return cut(lines, height, width) if height else lines

    def _verdict_lines(self, verdict: Verdict, width: int) -> list[StyledLine]:
        has_reason = verdict.verdict in self.with_reasons
        return [verdict_line(verdict, width), *(reasons(verdict, width) if has_reason else ())]


def tally(verdicts: list[Verdict]) -> StyledLine:
    """The number of verdicts for each outcome."""
    spans: list[Span] = []
    for outcome, (glyph, role) in LOOKS.items():
        count = sum(verdict.verdict is outcome for verdict in verdicts)
        if count:
            spans += [
                (f"{glyph} {count} ", role),
                (SHORT.get(outcome, outcome), Role.DIM),
                ("  ", Role.PLAIN),
            ]
    return tuple(spans[:-1])


def verdict_line(verdict: Verdict, width: int) -> StyledLine:
    """Outcome, limit and measured value."""
    glyph, role = LOOKS[verdict.verdict]
    if verdict.value is None:
        left: StyledLine = ((f"{glyph} {clean(verdict.limit, 120)}", Role.DIM),)
        return spread(left, ((verdict.verdict, Role.DIM),), width)
    left = ((f"{glyph} {verdict.verdict:<5}", role), (clean(verdict.limit, 120), Role.TEXT))
    return spread(left, ((verdict.brief, role),), width)


def reasons(verdict: Verdict, width: int) -> list[StyledLine]:
    """The reason and the advice."""
    return [
        line
        for text in (verdict.reason, verdict.advice)
        if text
        for line in paragraph(clean(text, 400), Role.DIM, width, indent=7 if verdict.advice else 2)
    ]


def note_lines(note: Sentence, width: int) -> list[StyledLine]:
    """One sentence of the summary."""
    glyph, role = NOTE_LOOKS[note.severity]
    first, *rest = paragraph(clean(note.text, 400), Role.TEXT, width, indent=2) or [()]
    return [((f"{glyph} ", role), *first[1:]), *rest]


def cut(lines: list[StyledLine], height: int, width: int) -> list[StyledLine]:
    """The first lines, and how to see the others."""
    if len(lines) <= height:
        return lines
    hint: StyledLine = (("… more with ", Role.DIM), ("v", Role.KEY))
    return [*lines[: height - 1], spread((), hint, width)] if height > 1 else lines[:height]
