"""Explain a log: why its last failure happened, and which other processes failed with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TypeVar

from memscope.analysis.diagnosis.balance import Balance
from memscope.analysis.diagnosis.explanation import Advice, Diagnosis, Explanation, Failure
from memscope.analysis.diagnosis.log.incident import FailedProcess, failed_processes
from memscope.analysis.diagnosis.log.notes import failure_notes
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.message import Message, Refusal
from memscope.interop.oom_log.formats.registry import format_name
from memscope.interop.oom_log.formats.torch_message import TorchKind, TorchMessage
from memscope.interop.oom_log.formats.xla import XlaMessage
from memscope.interop.oom_log.lines import plain
from memscope.interop.oom_log.reader import LogFindings
from memscope.units import torch_size

T = TypeVar("T")

_KILLED = re.compile(r"\bKilled\b")
KILLED_ADVICE = (
    "Something outside killed it. If it was the kernel, host memory ran out, not GPU memory: "
    "`dmesg` names the process, `kubectl describe pod` says OOMKilled (exit code 137), and "
    "`sacct -j JOB` says OUT_OF_MEMORY."
)
_MAX_NAMES = 4


def explain_log(findings: LogFindings) -> Explanation:
    """Explain the last failure in a log, and list the other processes that failed with it."""
    failed = failed_processes(findings)
    if not failed:
        return _explain_nothing(findings)
    whole = _whole_context(findings)
    explained = [_explain_process(each, whole, is_alone=len(failed) == 1) for each in failed]
    return replace(
        explained[0],
        help=(*explained[0].help, *_help_others(failed, explained)),
        notes=(*explained[0].notes, *failure_notes(findings, failed)),
        failures=tuple(map(_failure, failed, explained)),
    )


def explain_message(message: Message, context: LogContext | None = None) -> Explanation:
    """Explain one message. ``context``: what the log says around it."""
    return _explainer(format_name(message))(message, context or LogContext())


@cache
def _explainer(name: str) -> Callable[[Message, LogContext], Explanation]:
    """`explain` of the module in this package that has the name of the message's format."""
    explain: Callable[[Message, LogContext], Explanation]
    explain = import_module(f"memscope.analysis.diagnosis.log.{name}").explain
    return explain


def _whole_context(findings: LogFindings) -> LogContext:
    """What the log says anywhere, with what all of its messages agree on."""
    context = findings.context.copy()
    context.servers |= findings.servers
    messages = [finding.message for finding in findings.findings]
    _fill_agreed(context.accounts, [message.accounts for message in messages])
    _fill_agreed(context.options, [message.options for message in messages])
    return context


def _fill_agreed(known: dict[str, T], told: Sequence[dict[str, T]]) -> None:
    """Add each name of ``told`` to ``known`` if it is new and has one value everywhere."""
    for name in dict.fromkeys(name for each in told for name in each):
        values = {each[name] for each in told if name in each}
        if len(values) == 1:
            known.setdefault(name, *values)


def _explain_process(process: FailedProcess, whole: LogContext, *, is_alone: bool) -> Explanation:
    finding = process.finding
    context = finding.context.filled_by(whole)
    if not is_alone:
        context.forget_pool()  # the log does not say whose pool it is
    message = finding.message
    if message.device is None and isinstance(message, XlaMessage):
        message = replace(message, device=process.device)
    explanation = explain_message(message, context)
    if message.kind is not TorchKind.BARE or not finding.quote:
        return explanation
    quote = f'Line {finding.line:,} says: "{finding.quote}".'
    return replace(explanation, notes=(quote, *explanation.notes))


def _failure(process: FailedProcess, explanation: Explanation) -> Failure:
    return Failure(
        process.finding.writer.name,
        explanation.device,
        "" if explanation.device is None else explanation.device_name,
        explanation.diagnosis or Diagnosis.UNKNOWN,
        explanation.sizes_bytes,
        process.line,
    )


def _help_others(
    failed: Sequence[FailedProcess], explained: Sequence[Explanation]
) -> Iterator[Advice]:
    """One piece of advice for each diagnosis that the first process's advice does not cover."""
    first = explained[0]
    helped = {advice.setting for advice in first.help}
    groups: dict[Diagnosis, list[tuple[FailedProcess, Explanation]]] = {}
    for process, other in zip(failed[1:], explained[1:], strict=True):
        is_helped = not other.help or other.help[0].setting in helped
        diagnosis = other.diagnosis or Diagnosis.UNKNOWN
        if diagnosis not in (Diagnosis.UNKNOWN, first.diagnosis) and not is_helped:
            groups.setdefault(diagnosis, []).append((process, other))
    for diagnosis, group in groups.items():
        yield _group_advice(diagnosis, group, helped)


def _group_advice(
    diagnosis: Diagnosis, group: Sequence[tuple[FailedProcess, Explanation]], helped: set[str]
) -> Advice:
    names = [process.name or f"line {process.line:,}" for process, _ in group]
    shown = ", ".join(names[:_MAX_NAMES])
    if len(names) > _MAX_NAMES:
        shown += f" and {len(names) - _MAX_NAMES:,} more"
    most = max(_missing_bytes(process.finding.message) for process, _ in group)
    lacks = f", {'up to ' if len(names) > 1 else ''}{torch_size(most)} missing" if most else ""
    is_apart = all(each.setting not in helped for _, other in group for each in other.help)
    rest = "nothing above helps" if is_apart else "this first"
    setting = group[0][1].help[0].setting
    return Advice(f"{shown}: {setting}", f"{diagnosis.words}{lacks}: {rest}", most or None)


def _missing_bytes(message: Message) -> int:
    """Bytes that the process lacked, 0 if its message does not say."""
    if isinstance(message, TorchMessage):
        return Balance(message).missing_bytes or 0
    if isinstance(message, Refusal) or message.requested is None or message.free is None:
        return 0
    return max(message.requested.bytes - message.free.bytes, 0)


def _explain_nothing(findings: LogFindings) -> Explanation:
    if findings.last_error:
        notes = [f"Its last error: {plain(findings.last_error)}"]
    else:
        notes = [f"No error either; its last line: {plain(findings.last_line)}"]
    if _KILLED.search(plain(findings.last_error)):
        notes.append(KILLED_ADVICE)
    return Explanation(None, "No out-of-memory error is in this text.", notes=tuple(notes))
