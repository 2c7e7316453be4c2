"""Ends of programs for lack of host memory: killed by the kernel, or /dev/shm was full.

The kernel's lines are from mm/oom_kill.c, OOMKilled is Kubernetes' word for the same, and the bus
error is told by torch/utils/data/_utils/signal_handling.py. Texts come without white space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memscope.interop.oom_log.formats.torch import OomMessage
from memscope.interop.oom_log.quantities import QUANTITY, parse_quantity
from memscope.interop.oom_log.sizes import Size, parse_size


@dataclass(frozen=True, slots=True)
class HostMessage(OomMessage):
    """One message. ``kind``: "kill", or "shm". ``detail``: the program killed, "" if not told.

    ``limit``: of its container. ``allocated``: what it held. ``is_container``: whether a limit ran
    out and not all of the machine's memory. ``pid``: None where the text has none.
    """

    pid: int | None = None
    is_container: bool = False


NEEDLES = {
    "kill": ("OOMKilled", "utofmemory:Killedprocess", "utofmemory:Killprocess"),
    "shm": ("insufficientsharedmemory(shm)", "unabletowritetofile</torch_"),
}
WORDS = ("OOMKilled", "shared memory", "write to file")

_PROCESS = re.compile(r"[Kk]ill(?:ed)?process(\d{1,10})\((.{1,24}?)\)(?:,|total-vm|score)")
_HELD = re.compile(r"(?:anon|shmem)-rss:(\d{1,18})kB")
_LIMIT = re.compile(rf"[Ll]imits\"?:(?:(?!equests).){{0,60}}?memory\"?:\"?({QUANTITY})")
_HELD_CHARACTERS = 400


def start_of(kind: str, text: str, place: int) -> int | None:
    """Where the message begins whose needle is at ``place``; None where it is none."""
    if kind == "kill" and text.startswith("utofmemory", place):
        begin = text.rfind("Memorycgroup", max(place - 16, 0), place)
        return place - 1 if begin < 0 else begin
    is_slurms = text.endswith("havebeen", 0, place)  # "... tasks have been OOM Killed."
    return None if is_slurms else place


def parse_host(kind: str, text: str) -> HostMessage:
    """The message of ``kind`` at the start of ``text``."""
    if kind == "shm":
        return HostMessage("shm")
    if text.startswith("OOMKilled"):
        own = text.partition("ContainerID:")[0]  # where the next container begins
        return HostMessage("kill", limit=_limit(own), is_container=True)
    process = _PROCESS.search(text[:200])
    return HostMessage(
        "kill",
        allocated=_held(text[:_HELD_CHARACTERS]),
        detail=process[2] if process else "",
        pid=int(process[1]) if process else None,
        is_container=text.startswith("Memorycgroup"),
    )


def _held(text: str) -> Size | None:
    """What counts against a limit and cannot be dropped."""
    sizes = [parse_size(f"{kib}KB") for kib in _HELD.findall(text)[:2]]
    known = [size for size in sizes if size is not None]
    return sum(known[1:], known[0]) if known else None


def _limit(text: str) -> Size | None:
    match = _LIMIT.search(text)
    size = parse_quantity(match[1]) if match else None
    return size if size and size.bytes else None
