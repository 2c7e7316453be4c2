"""Programs killed by the Linux kernel for lack of memory, or stopped by a full /dev/shm.

The kernel's lines are from mm/oom_kill.c; the bus error is reported by
torch/utils/data/_utils/signal_handling.py. Texts come without white space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from memscope.interop.oom_log.formats.message import Format, Message
from memscope.interop.oom_log.sizes import Size, parse_size


class LinuxKind(StrEnum):
    """What the system did."""

    KILL = "kill"
    SHM_FULL = "shm"


@dataclass(frozen=True, slots=True)
class LinuxMessage(Message):
    """One message. ``detail``: the name of the killed program, "" if not given.

    ``limit``: of its container. ``allocated``: what the program held. ``is_container``: a
    container's limit ran out, not all of the machine's memory.
    """

    kind: LinuxKind
    pid: int | None = None
    is_container: bool = False

    @property
    def accounts(self) -> dict[str, Size]:
        """What it adds to `LogContext.accounts`, if all messages of a log agree."""
        sizes = {"host_limit": self.limit, "host_held": self.allocated}
        return {name: size for name, size in sizes.items() if size is not None}


_PROCESS = re.compile(r"[Kk]ill(?:ed)?process(\d{1,10})\((.{1,24}?)\)(?:,|total-vm|score)")
_HELD = re.compile(r"(?:anon|shmem)-rss:(\d{1,18})kB")
_HELD_CHARACTERS = 400


def _find_start(kind: LinuxKind, text: str, place: int) -> int:
    if kind is LinuxKind.SHM_FULL:
        return place
    begin = text.rfind("Memorycgroup", max(place - 16, 0), place)
    return place - 1 if begin < 0 else begin


def _parse(kind: LinuxKind, text: str) -> LinuxMessage:
    if kind is LinuxKind.SHM_FULL:
        return LinuxMessage(kind)
    process = _PROCESS.search(text[:200])
    return LinuxMessage(
        kind,
        allocated=_held(text[:_HELD_CHARACTERS]),
        detail=process[2] if process else "",
        pid=int(process[1]) if process else None,
        is_container=text.startswith("Memorycgroup"),
    )


def _held(text: str) -> Size | None:
    """Memory that counts against a limit and cannot be dropped: anonymous and shared pages."""
    sizes = [parse_size(f"{kib}KB") for kib in _HELD.findall(text)[:2]]
    known = [size for size in sizes if size is not None]
    return sum(known[1:], known[0]) if known else None


FORMAT = Format(
    name="linux",
    message=LinuxMessage,
    needles={
        LinuxKind.KILL: ("utofmemory:Killedprocess", "utofmemory:Killprocess"),
        LinuxKind.SHM_FULL: ("insufficientsharedmemory(shm)", "unabletowritetofile</torch_"),
    },
    words=("shared memory", "write to file"),
    find_start=_find_start,
    parse=_parse,
)
