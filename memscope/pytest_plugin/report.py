"""What a measured test prints: value and limit in one line, the largest holders, the recording."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from memscope.text import clean
from memscope.units import format_bytes, format_value

if TYPE_CHECKING:
    from memscope.analysis.ledger.ledger import Ledger
    from memscope.analysis.limits.limits import Verdict
    from memscope.pytest_plugin.judgement import Judgement

MAX_HOLDERS = 3


def describe_broken(judgement: Judgement, path: Path) -> str:
    """Each broken limit with its advice, memory at the peak, and the recording's path."""
    lines = []
    for verdict in judgement.broken:
        lines.append(describe_verdict(judgement, verdict))
        lines += [f"  {verdict.advise(str(path))}"] if verdict.advice else []
    return "\n".join([*lines, *_describe_peak(path), describe_kept(path)])


def describe_verdict(judgement: Judgement, verdict: Verdict) -> str:
    """Value and limit in one line, with the value of each repetition if there are several."""
    values = judgement.values.get(verdict.metric, ())
    text = f"memscope: {clean(verdict.sentence)}"
    if len(values) > 1 and verdict.value is not None:
        each = ", ".join(
            "none" if value is None else format_value(value, verdict.unit) for value in values
        )
        text += f" (median of {each})"
    return text


def describe_unjudged(judgement: Judgement) -> str | None:
    """Why limits could not be checked, or None if all were."""
    if judgement.unmeasured is not None:
        return f"memscope: no limit could be checked: {_trim(judgement.unmeasured)}"
    reasons = [
        clean(f"{verdict.limit}: {verdict.verdict}, {_trim(verdict.reason)}")
        for verdict in judgement.unjudged
    ]
    if judgement.missing:
        reasons.append(judgement.missing)
    return f"memscope: {'; '.join(reasons)}" if reasons else None


def describe_kept(path: Path) -> str:
    """The last line of every failure."""
    return f"memscope: recording kept at {path}"


def is_memory_error(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out: Python's, torch's or our runner's error."""
    names = {each.__name__ for each in type(error).__mro__}
    return bool(names & {"OutOfMemoryError", "OutOfMemory", "MemoryError"})


def describe_memory_error(path: Path, error: BaseException) -> list[str]:
    """Why memory ran out, from the recording or else the exception's text; empty if unknown."""
    try:
        return _explain(path, error)
    except Exception as fault:
        return [f"memscope: could not explain why memory ran out: {type(fault).__name__}: {fault}"]


def _explain(path: Path, error: BaseException) -> list[str]:
    from memscope.analysis.diagnosis.log.explain import explain_log
    from memscope.analysis.diagnosis.recording.explain import explain_timeline
    from memscope.analysis.timeline.read import read_timeline
    from memscope.cli.text.explanation import explanation_lines
    from memscope.interop.oom_log.reader import read_log
    from memscope.reader.recording import Recording

    with Recording(path) as recording:
        explanation = explain_timeline(read_timeline(recording), recording.state)
    if explanation.diagnosis is None:
        explanation = explain_log(read_log(_as_log(error)))
    return [] if explanation.diagnosis is None else explanation_lines(explanation)


def _as_log(error: BaseException) -> BinaryIO:
    return io.BytesIO(f"{type(error).__name__}: {error}\n".encode(errors="replace"))


def _describe_peak(path: Path) -> list[str]:
    """Never raises: the verdict must be printed in any case."""
    try:
        ledgers = _ledgers_at_peak(path)
    except Exception as error:
        return [f"memory at the peak: unknown ({type(error).__name__}: {error})"]
    if not ledgers:
        return ["memory at the peak: unknown (no device is recorded)"]
    from memscope.cli.text.ledger import ledger_lines

    lines = []
    for ledger in ledgers:
        lines += ["largest holders at the peak", *_largest(ledger), *ledger_lines(ledger)]
    return lines


def _largest(ledger: Ledger) -> list[str]:
    from memscope.cli.text.columns import align

    held = [line for line in ledger.total.leaves if line.bytes is not None and line.key != "free"]
    most = sorted(held, key=lambda line: -(line.bytes or 0))[:MAX_HOLDERS]
    return align((format_bytes(line.bytes or 0), clean(line.words, 60)) for line in most)


def _ledgers_at_peak(path: Path) -> Sequence[Ledger]:
    from memscope.analysis.ledger.ledger import make_ledgers
    from memscope.analysis.timeline.read import read_timeline
    from memscope.reader.recording import Recording

    with Recording(path) as recording:
        return make_ledgers(read_timeline(recording, at="peak"))


def _trim(sentence: str | None) -> str:
    return (sentence or "no reason given").rstrip(". ")
