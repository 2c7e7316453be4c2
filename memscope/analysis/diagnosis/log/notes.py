"""Notes about a log: how many processes failed, which one is explained, and whether memory grew."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from memscope.analysis.diagnosis.log.incident import (
    FailedProcess,
    failure_starts,
    has_comparable_times,
    saw_first,
)
from memscope.interop.oom_log.formats.torch_message import TorchMessage
from memscope.interop.oom_log.reader import LogFindings
from memscope.units import torch_size


def failure_notes(findings: LogFindings, failed: list[FailedProcess]) -> tuple[str, ...]:
    """What a reader should know of the failures in a log besides the one that is explained."""
    notes = []
    chosen = failed[0]
    if len(failed) > 1:
        notes.append(_who_else(findings, failed))
    else:
        notes += _other_failures(findings, chosen)
    if findings.retries and findings.last_retry is not chosen.finding:
        notes.append(
            f"{findings.retries:,} allocations failed once and were tried again: the card was full."
        )
    growth = _growth(findings)
    if growth:
        notes.append(growth)
    return tuple(notes)


def _other_failures(findings: LogFindings, chosen: FailedProcess) -> Iterator[str]:
    """A note that the log contains more failures than the explained one."""
    starts, line = failure_starts(findings), chosen.finding.line
    count = len(starts) if findings.is_whole else findings.count
    if count < 2:
        return
    devices = _devices(findings)
    where = f", on devices {', '.join(map(str, devices))}" if len(devices) > 1 else ""
    has_earlier = not findings.is_whole or sum(start <= line for start in starts) > 1
    earlier = " The program may have caught earlier ones." if has_earlier else ""
    yield (
        f"The log has {count:,} different messages about memory{where}. This is the one on line "
        f"{line:,}.{earlier}"
    )


def _who_else(findings: LogFindings, failed: list[FailedProcess]) -> str:
    first = failed[0]
    noun = "processes" if all(each.finding.writer.name for each in failed) else "devices"
    count = f"{len(failed):,}" if findings.is_whole else f"At least {len(failed):,}"
    name = f"{first.name}, " if first.name else ""
    return (
        f"{count} {noun} ran out of memory. This is {name}{_why_first(findings, failed)} (line "
        f"{first.line:,}). The others are listed below; the program may have caught some."
    )


def _why_first(findings: LogFindings, failed: list[FailedProcess]) -> str:
    first, *others = failed
    if saw_first(findings, first):
        return "the first failure that torchrun saw"
    if has_comparable_times(failed):
        is_first = all(first.t_ns <= other.t_ns for other in others)
        return "the first by the log's times" + ("" if is_first else " that gives numbers")
    if any(other.line < first.line for other in others):
        return "the first in the log that gives numbers"
    return "the first in the log" if findings.is_whole else "the first of the latest messages"


def _devices(findings: LogFindings) -> list[int]:
    devices = {finding.message.device for finding in findings.findings}
    return sorted(device for device in devices if device is not None)


def _growth(findings: LogFindings) -> str:
    """A note if the last failed process had allocated more in each of its messages."""
    last = findings.findings[-1] if findings.findings else None
    if last is None:
        return ""
    held = [
        finding.message.allocated.bytes
        for finding in findings.findings
        if isinstance(finding.message, TorchMessage)
        and (finding.writer, finding.message.device) == (last.writer, last.message.device)
        and finding.message.allocated is not None
    ]
    if len(held) < 3 or any(right <= left for left, right in pairwise(held)):
        return ""
    return (
        f"Allocated memory rose from message to message, from {torch_size(held[0])} to "
        f"{torch_size(held[-1])}: the program keeps something after each failure."
    )
