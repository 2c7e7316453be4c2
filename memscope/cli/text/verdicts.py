"""Verdicts as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memscope.cli.text.columns import align
from memscope.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memscope.analysis.limits.limits import Verdict


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """One line for each verdict, with advice below. Default limits without a value are left out."""
    shown = [verdict for verdict in verdicts if verdict.is_named or verdict.value is not None]
    rows = align(
        (verdict.verdict, clean(verdict.limit, 120), clean(_actual(verdict))) for verdict in shown
    )
    lines = []
    for verdict, row in zip(shown, rows, strict=True):
        lines.append(row)
        if verdict.advice:
            lines.append(f"        {verdict.advice}")
    return lines


def _actual(verdict: Verdict) -> str:
    if verdict.value is None:
        return verdict.reason or ""
    return f"{verdict.actual} ({verdict.reason})" if verdict.reason else verdict.actual
