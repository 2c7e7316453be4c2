"""The table at a session's end, as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memscope.pytest_plugin.outcome import actual
from memscope.text import clean

if TYPE_CHECKING:
    from memscope.analysis.limits.limits import Limit

SHOWN = 20
_WORST_FIRST = ("fail", "not measured", "warn", "not applicable", "pass")


def table_lines(outcomes: Sequence[dict[str, Any]]) -> list[str]:
    """One line a limit of a marked test, and a broken one of any; the worst first."""
    from memscope.cli.text.columns import align

    rows = [
        (limit["verdict"], outcome["test"], limit["limit"], actual(limit))
        for outcome in outcomes
        for limit in outcome["limits"]
        if outcome["is_marked"] or limit["verdict"] == "fail"
    ]
    rows.sort(key=lambda row: (_WORST_FIRST.index(row[0]), row[1]))
    shown = [tuple(clean(cell, 70) for cell in row) for row in rows[:SHOWN]]
    left = Counter(row[0] for row in rows[SHOWN:])
    more = ", ".join(f"{count} {verdict}" for verdict, count in left.items())
    return align(shown) + ([f"  and {more}"] if more else []) if shown else []


def shared_lines(limits: Sequence[Limit], outcomes: Sequence[dict[str, Any]]) -> list[str]:
    """One line a limit of every test: how many came to what."""
    lines = []
    for limit in limits:
        found = Counter(
            verdict["verdict"]
            for outcome in outcomes
            for verdict in outcome["limits"]
            if verdict["limit"] == limit.text
        )
        counts = ", ".join(f"{found[word]} {word}" for word in _WORST_FIRST if found[word])
        lines.append(f"  every test: {clean(limit.text, 70)}: {counts or 'judged in none'}")
    return lines
