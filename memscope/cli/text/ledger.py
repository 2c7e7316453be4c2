"""A ledger as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memscope.analysis.ledger.lines import Coverage
from memscope.text import clean
from memscope.units import format_bytes

if TYPE_CHECKING:
    from memscope.analysis.ledger.ledger import Ledger

WIDTH = 46


def ledger_lines(ledger: Ledger) -> list[str]:
    """Each entry that has bytes, indented below its whole; then what could not be measured."""
    index = f" {ledger.device}" if ledger.device >= 0 else ""
    heading = f"ledger: device{index}, {ledger.name}, by {ledger.source}"
    lines = [f"{clean(heading, 100)}, at {ledger.at_ns / 1e9:.1f} s"]
    for depth, line in ledger.lines:
        if line.bytes is None or (not line.bytes and line.is_rest):
            continue
        words = "  " * (depth + 1) + clean(line.words, 60)
        mark = " ~" if line.coverage is Coverage.PARTIAL and not line.is_rest else ""
        lines.append(f"{words:{WIDTH}}  {format_bytes(line.bytes):>10}{mark}")
    for coverage in (Coverage.PARTIAL, Coverage.ABSENT):
        reasons: dict[str, list[str]] = {}
        for line in ledger.coverage.get(coverage, ()):
            reasons.setdefault(line.reason, []).append(line.words)
        mark = "~ partial" if coverage is Coverage.PARTIAL else coverage
        for reason, words_of in reasons.items():
            lines.append(f"  {mark}: {clean(', '.join(words_of), 200)} ({clean(reason, 300)})")
    return lines
