"""Which processes and devices of a log ran out of memory together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from memscope.interop.oom_log.reader import Finding, LogFindings
from memscope.interop.oom_log.time import Stamp, are_comparable
from memscope.interop.oom_log.writer import Writer

# Messages closer than this belong to one failure, reported by several layers or ranks.
INCIDENT_LINES = 2000
# Tracebacks between an error and the errors that it caused take at most so many lines.
ECHO_LINES = 200
_MOST_COMPARED = 16

_Key: TypeAlias = tuple[Writer, int | None]


@dataclass(frozen=True, slots=True)
class FailedProcess:
    """A process, or a device of a process, that ran out of memory.

    ``finding``: its most detailed message. ``line``: of its first message. ``device``: None if no
    message names it. ``stamp``: when its first message was written, None if the log does not say.
    """

    finding: Finding
    line: int
    device: int | None = None
    stamp: Stamp | None = None

    @property
    def t_ns(self) -> int:
        """When it failed, in ns; 0 if unknown. Comparable only to stamps of the same form."""
        return self.stamp.t_ns if self.stamp else 0

    @property
    def name(self) -> str:
        """The process as the log names it, else its device, else ""."""
        device = "" if self.device is None else f"device {self.device}"
        return self.finding.writer.name or device


def failed_processes(findings: LogFindings) -> list[FailedProcess]:
    """The processes of the last failure: the one to explain first, the others in order of lines.

    Of the processes with the most detailed message, the one to explain is the first that torchrun
    saw fail, else the first by the times of the lines, else the first in the log.
    """
    if not findings.findings:
        retry = findings.last_retry
        return [] if retry is None else [_process([retry])]
    failed = sorted(
        (_process(messages) for messages in _by_process(_incident(findings))),
        key=lambda process: process.line,
    )
    has_times = has_comparable_times(failed)

    def order(process: FailedProcess) -> tuple[int, bool, int, int]:
        t_ns = process.t_ns if has_times else 0
        return -process.finding.message.weight, not saw_first(findings, process), t_ns, process.line

    first = min(failed, key=order)
    return [first, *(process for process in failed if process is not first)]


def has_comparable_times(failed: Sequence[FailedProcess]) -> bool:
    """Whether all have a time, in the same form."""
    return are_comparable(process.stamp for process in failed)


def saw_first(findings: LogFindings, process: FailedProcess) -> bool:
    """Whether torchrun says that ``process`` failed first."""
    return not findings.first_ranks.isdisjoint(process.finding.writer.ranks)


def failure_starts(findings: LogFindings) -> list[int]:
    """The first line of each failure. A message that repeats the one before does not count."""
    starts: list[int] = []
    told: list[Finding] = []
    last_line = 0
    for finding in findings.findings:
        is_near = bool(told) and finding.line - last_line <= ECHO_LINES
        last_line = finding.line
        if is_near and all(_may_be_same(finding, earlier) for earlier in told):
            told = [*told[:_MOST_COMPARED], finding]
            continue
        starts.append(finding.line)
        told = [finding]
    return starts


def _may_be_same(finding: Finding, earlier: Finding) -> bool:
    """Whether two messages can be about one failure, judged by their numbers."""
    message, other = finding.message, earlier.message
    if None not in (message.device, other.device) and message.device != other.device:
        return False
    if message.kind is other.kind and min(message.size_count, other.size_count) > 2:
        return False  # a repeat would have the same numbers, and counts once
    requested, before = message.requested, other.requested
    if requested is None or before is None:
        return True
    difference = requested - before
    return abs(difference.bytes) <= difference.slack_bytes


def _incident(findings: LogFindings) -> list[Finding]:
    incident = [findings.findings[-1]]
    for earlier in reversed(findings.findings[:-1]):
        if incident[-1].line - earlier.line > INCIDENT_LINES:
            break
        incident.append(earlier)
    return incident


def _process(messages: Sequence[Finding]) -> FailedProcess:
    """The process, by its most detailed message; of equals by the last, as it was not caught."""
    most = max(messages, key=lambda finding: (finding.message.weight, finding.line))
    devices = (finding.message.device for finding in (most, *messages))
    first = min(messages, key=lambda finding: finding.line)
    device = next((device for device in devices if device is not None), None)
    return FailedProcess(most, first.line, device, first.stamp)


def _by_process(incident: Sequence[Finding]) -> list[list[Finding]]:
    """Messages grouped by process and, if they name one, by device.

    Launchers and engines repeat what one of their processes said: a message that names its process
    or device incompletely joins a group that fits.
    """
    groups: dict[_Key, list[Finding]] = {}
    homes: dict[_Key, _Key] = {}
    for finding in sorted(incident, key=_vagueness):
        writer, device = finding.writer, finding.message.device
        home = homes.setdefault((writer, device), (writer, device))
        groups.setdefault(home, []).append(finding)
        for coarser in writer.coarser():
            homes.setdefault((coarser, device), home)
            homes.setdefault((coarser, None), home)
    return list(_without_engines(groups).values())


def _without_engines(groups: dict[_Key, list[Finding]]) -> dict[_Key, list[Finding]]:
    """Join vLLM's engine ("DP0") to the worker ("TP1") whose messages it repeats."""
    workers = [key for key in groups if any(rank.startswith("TP") for rank in key[0].ranks)]
    kept = dict(groups)
    for key in groups:
        worker = next((each for each in workers if _is_engine_of(key, each)), None)
        if worker is not None:
            most = max(each.message.weight for each in kept[worker])
            more = [finding for finding in kept.pop(key) if finding.message.weight > most]
            kept[worker] = [*kept[worker], *more]
    return kept


def _is_engine_of(key: _Key, worker: _Key) -> bool:
    writer, device = key
    is_engine = len(writer.ranks) == 1 and writer.ranks[0].startswith("DP")
    has_own_engine = any(rank.startswith("DP") for rank in worker[0].ranks)
    is_same_device = device is None or device == worker[1]
    return is_engine and not has_own_engine and is_same_device and writer.place == worker[0].place


def _vagueness(finding: Finding) -> tuple[bool, int, bool, int]:
    writer = finding.writer
    return finding.message.device is None, -len(writer.ranks), not writer.place, finding.line
