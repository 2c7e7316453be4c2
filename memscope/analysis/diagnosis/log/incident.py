"""Which processes and devices of a log ran out together, and the message that says most of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from memscope.interop.oom_log.formats.torch import OomMessage
from memscope.interop.oom_log.reader import Found, LogReading
from memscope.interop.oom_log.time import Stamp, are_comparable
from memscope.interop.oom_log.writer import Writer

# Messages no further apart belong to one failure, told by several layers or ranks of a program.
INCIDENT_LINES = 2000
# Lines of a traceback, or of several, that may lie between an error and what it caused.
ECHO_LINES = 200
_MOST_COMPARED = 16

_Key: TypeAlias = tuple[Writer, int | None]


@dataclass(frozen=True, slots=True)
class Victim:
    """A process, or a device of a process, that ran out.

    ``found``: its message that says most. ``line``: where its first one begins. ``device``: as any
    of them names it. ``stamp``: when its first one was written, where that line says so.
    """

    found: Found
    line: int
    device: int | None = None
    stamp: Stamp | None = None

    @property
    def t_ns(self) -> int:
        """When that was, to be compared with others of one form; 0 where it does not say."""
        return self.stamp.t_ns if self.stamp else 0

    @property
    def name(self) -> str:
        """Its process as the log names it, else its device, else ""."""
        device = "" if self.device is None else f"device {self.device}"
        return self.found.writer.name or device


def victims_of(reading: LogReading) -> list[Victim]:
    """Those of the last failure: the one to explain first, then in order of their lines.

    To explain is, of those whose message says most, one that torchrun saw fail first, else the
    first one by the times of their lines; where these cannot be compared, the first in the log.
    """
    if not reading.found:
        retry = reading.last_retry
        return [] if retry is None else [_victim([retry])]
    victims = sorted(
        (_victim(messages) for messages in _by_process(_incident(reading))),
        key=lambda victim: victim.line,
    )
    has_times = has_comparable_times(victims)

    def order(victim: Victim) -> tuple[int, bool, int, int]:
        t_ns = victim.t_ns if has_times else 0
        return -weight(victim.found), not saw_first(reading, victim), t_ns, victim.line

    first = min(victims, key=order)
    return [first, *(victim for victim in victims if victim is not first)]


def has_comparable_times(victims: Sequence[Victim]) -> bool:
    """Whether the lines of all say when they were written, in one form."""
    return are_comparable(victim.stamp for victim in victims)


def saw_first(reading: LogReading, victim: Victim) -> bool:
    """Whether torchrun says that ``victim`` failed first."""
    return not reading.first_ranks.isdisjoint(victim.found.writer.ranks)


def weight(found: Found) -> int:
    """How much a message says, in steps."""
    message = found.message
    if not isinstance(message, OomMessage):
        return 1 if message.kind == "warmup" else 2
    if message.kind in ("bare", "xla_driver", "xla_library"):
        return 0
    if message.kind == "ray":  # its first lines tell nothing of the node
        return int(message.total is not None)
    if message.kind in ("torch", "async", "mps"):
        return 2 if message.amounts >= 3 or message.is_beyond_exabyte else 1
    return 2 if message.kind in ("nvml", "xla", "xla_compile", "tensorflow") else 1


def failure_starts(reading: LogReading) -> list[int]:
    """The line on which each failure begins; a message that tells the one before again is none."""
    starts: list[int] = []
    told: list[Found] = []
    last_line = 0
    for found in reading.found:
        is_near = bool(told) and found.line - last_line <= ECHO_LINES
        last_line = found.line
        if is_near and all(_may_be_same(found, earlier) for earlier in told):
            told = [*told[:_MOST_COMPARED], found]
            continue
        starts.append(found.line)
        told = [found]
    return starts


def _may_be_same(found: Found, earlier: Found) -> bool:
    """Whether no number says that two messages are of two failures."""
    message, other = found.message, earlier.message
    if None not in (message.device, other.device) and message.device != other.device:
        return False
    if message.kind == other.kind and min(message.amounts, other.amounts) > 2:
        return False  # a repeat would have the same numbers, and counts once
    requested, before = message.requested, other.requested
    if requested is None or before is None:
        return True
    difference = requested - before
    return abs(difference.bytes) <= difference.slack_bytes


def _incident(reading: LogReading) -> list[Found]:
    incident = [reading.found[-1]]
    for earlier in reversed(reading.found[:-1]):
        if incident[-1].line - earlier.line > INCIDENT_LINES:
            break
        incident.append(earlier)
    return incident


def _victim(messages: Sequence[Found]) -> Victim:
    """Its message that says most; the last of equals, as earlier ones may have been caught."""
    most = max(messages, key=lambda found: (weight(found), found.line))
    devices = (found.message.device for found in (most, *messages))
    first = min(messages, key=lambda found: found.line)
    device = next((device for device in devices if device is not None), None)
    return Victim(most, first.line, device, first.stamp)


def _by_process(incident: Sequence[Found]) -> list[list[Found]]:
    """Messages that belong together: of one process and, where they name it, of one device.

    What names neither fully is of the process that fits it, as launchers and engines say again
    what one of their processes said.
    """
    groups: dict[_Key, list[Found]] = {}
    homes: dict[_Key, _Key] = {}
    for found in sorted(incident, key=_vagueness):
        writer, device = found.writer, found.message.device
        home = homes.setdefault((writer, device), (writer, device))
        groups.setdefault(home, []).append(found)
        for coarser in writer.coarser():
            homes.setdefault((coarser, device), home)
            homes.setdefault((coarser, None), home)
    return list(_without_engines(groups).values())


def _without_engines(groups: dict[_Key, list[Found]]) -> dict[_Key, list[Found]]:
    """vLLM's engine ("DP0") says again what one of its workers ("TP1") said, and seldom more."""
    workers = [key for key in groups if any(rank.startswith("TP") for rank in key[0].ranks)]
    kept = dict(groups)
    for key in groups:
        worker = next((each for each in workers if _is_engine_of(key, each)), None)
        if worker is not None:
            most = max(map(weight, kept[worker]))
            more = [found for found in kept.pop(key) if weight(found) > most]
            kept[worker] = [*kept[worker], *more]
    return kept


def _is_engine_of(key: _Key, worker: _Key) -> bool:
    writer, device = key
    is_engine = len(writer.ranks) == 1 and writer.ranks[0].startswith("DP")
    has_own_engine = any(rank.startswith("DP") for rank in worker[0].ranks)
    is_same_device = device is None or device == worker[1]
    return is_engine and not has_own_engine and is_same_device and writer.place == worker[0].place


def _vagueness(found: Found) -> tuple[bool, int, bool, int]:
    writer = found.writer
    return found.message.device is None, -len(writer.ranks), not writer.place, found.line
