"""Which processes and devices of a log ran out together, and the message that says most of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from memscope.interop.log_writer import Writer
from memscope.interop.oom_formats import OomMessage
from memscope.interop.oom_message import Found, LogReading

# Messages no further apart belong to one failure, told by several layers or ranks of a program.
INCIDENT_LINES = 2000

_Key: TypeAlias = tuple[Writer, int | None]


@dataclass(frozen=True, slots=True)
class Victim:
    """A process, or a device of a process, that ran out.

    ``found``: its message that says most. ``line``: where its first one begins. ``device``: as any
    of them names it.
    """

    found: Found
    line: int
    device: int | None = None

    @property
    def name(self) -> str:
        """Its process as the log names it, else its device, else ""."""
        device = "" if self.device is None else f"device {self.device}"
        return self.found.writer.name or device


def victims_of(reading: LogReading) -> list[Victim]:
    """Those of the last failure: the one to explain first, then in order of their lines.

    To explain is, of those whose message says most, one that torchrun saw fail first, else the
    first one in the log.
    """
    if not reading.found:
        retry = reading.last_retry
        return [] if retry is None else [_victim([retry])]
    victims = sorted(
        (_victim(messages) for messages in _by_process(_incident(reading))),
        key=lambda victim: victim.line,
    )
    first = min(
        victims,
        key=lambda victim: (-weight(victim.found), not saw_first(reading, victim), victim.line),
    )
    return [first, *(victim for victim in victims if victim is not first)]


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
    if message.kind in ("torch", "async", "mps"):
        return 2 if message.figures >= 3 or message.is_beyond_exabyte else 1
    return 2 if message.kind in ("nvml", "xla", "xla_compile", "tensorflow") else 1


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
    return Victim(
        most,
        min(found.line for found in messages),
        next((device for device in devices if device is not None), None),
    )


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
    return list(groups.values())


def _vagueness(found: Found) -> tuple[bool, int, bool, int]:
    writer = found.writer
    return found.message.device is None, -len(writer.ranks), not writer.place, found.line
