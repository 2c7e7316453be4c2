"""What a marked test says: limit and actual in one line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memscope.units import format_value

if TYPE_CHECKING:
    from memscope.analysis.limits import Verdict
    from memscope.pytest_plugin.measurement import Judgement


def describe_broken(verdicts: tuple[Verdict, ...], path: Path) -> str:
    """One line for each broken limit, and where the recording of the test lies."""
    return "\n".join(f"{_describe(verdict)}; recording kept at {path}" for verdict in verdicts)


def describe_unjudged(judgement: Judgement) -> str | None:
    """Why limits could not be judged; None where all were."""
    if judgement.unmeasured is not None:
        return f"memscope: nothing can be judged: {_trim(judgement.unmeasured)}"
    reasons = [
        f"{verdict.limit}: {verdict.verdict}, {_trim(verdict.reason)}"
        for verdict in judgement.unjudged
    ]
    return f"memscope: {'; '.join(reasons)}" if reasons else None


def describe_near(verdicts: tuple[Verdict, ...]) -> list[str]:
    """One line for each limit that is close to being broken."""
    return [_describe(verdict) for verdict in verdicts]


def describe_kept(path: Path) -> str:
    """For a test that failed by itself."""
    return f"memscope: recording kept at {path}"


def describe_usage(test: str, error: Exception) -> str:
    """A limit that cannot be read, and whose it is."""
    return f"memscope: {test}: {error}"


def _describe(verdict: Verdict) -> str:
    bound = verdict.limit.removeprefix(verdict.figure).strip() or "the default"
    actual = "none" if verdict.value is None else format_value(verdict.value, verdict.unit)
    text = f"memscope: {verdict.figure} = {actual}, limit {bound}"
    return f"{text}: {_trim(verdict.advice)}" if verdict.advice else text


def _trim(sentence: str | None) -> str:
    return (sentence or "no reason given").rstrip(". ")
