"""Processes from /proc: command, user, container, age, and whether the parent has ended."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
REAPERS = ("systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "conmon")
_CONTAINER = re.compile(r"(?:docker|libpod|crio|cri-containerd|containerd|kubepods)[^\n]*")
_ID = re.compile(r"[0-9a-f]{64}|[0-9a-f]{32}")
ID_LETTERS = 12


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """A process of this machine. None: could not be read. ``container``: start of its id."""

    pid: int
    command: str | None
    user: str | None
    container: str | None
    age_s: float | None
    is_orphan: bool | None


def read_process(pid: int, proc: Path = PROC) -> ProcessEntry | None:
    """What /proc says about ``pid``; None if this process cannot see it."""
    folder = proc / str(pid)
    stat = _read(folder / "stat")
    if stat is None:
        return None
    fields = stat.rpartition(")")[2].split()
    return ProcessEntry(
        pid=pid,
        command=_command(folder, stat),
        user=_user(folder),
        container=container_of(_read(folder / "cgroup") or ""),
        age_s=_age(int(fields[19]), proc),
        is_orphan=is_orphan(pid, int(fields[1]), int(fields[3]), proc),
    )


def is_orphan(pid: int, parent: int, session: int, proc: Path = PROC) -> bool:
    """Whether its parent has ended, so that a reaper of another session adopted it.

    A service that the reaper started itself leads its session or shares the reaper's.
    """
    if parent > 1:
        name = (_read(proc / str(parent) / "comm") or "").strip()
        if name not in REAPERS and not name.startswith("containerd-shim"):
            return False
    return session not in (pid, parent, 0)


def container_of(cgroup: str) -> str | None:
    """Start of the id of a control group's container; None outside a container."""
    match = _CONTAINER.search(cgroup)
    found = _ID.search(match.group()) if match else None
    return found.group()[:ID_LETTERS] if found else None


def is_in_container(proc: Path = PROC) -> bool:
    """Whether this process sees only processes of a container."""
    if any(os.path.exists(mark) for mark in ("/.dockerenv", "/run/.containerenv")):
        return True
    return container_of(_read(proc / "self" / "cgroup") or "") is not None


def _command(folder: Path, stat: str) -> str | None:
    words = (_read(folder / "cmdline") or "").split("\0")
    text = " ".join(word for word in words if word)
    return text or stat[stat.find("(") + 1 : stat.rfind(")")] or None


def _user(folder: Path) -> str | None:
    try:
        number = folder.stat().st_uid
    except OSError:
        return None
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        return str(number)


def _age(start_ticks: int, proc: Path) -> float | None:
    uptime = _read(proc / "uptime")
    if uptime is None:
        return None
    return max(float(uptime.split()[0]) - start_ticks / os.sysconf("SC_CLK_TCK"), 0.0)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
