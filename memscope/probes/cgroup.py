"""Memory limit of the process's control group (its container), its use, and its events.

Version 2 (one folder, memory.max) and version 1 (one folder per controller, memory.limit_in_bytes),
as in the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memscope.facts import Fact
from memscope.probes.kernel_files import read_kernel_file

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

SECONDS = 1.0
UNLIMITED = 1 << 62  # version 1 writes the largest multiple of a page where there is no limit


@dataclass(frozen=True, slots=True)
class Group:
    """The group with the lowest limit, from this process up. ``limit_bytes`` None: no limit."""

    version: int
    folder: Path
    limit_bytes: int | None

    def read_used(self) -> int:
        """Bytes charged to the group. Raises OSError, ValueError."""
        name = "memory.current" if self.version == 2 else "memory.usage_in_bytes"
        return int(read_kernel_file(self.folder / name))

    def read_events(self) -> dict[str, int]:
        """Counts of what happened at the limit so far, by the kernel's names."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        counts = _read_counts(self.folder / name)
        if self.version == 1:
            failures = _read_number(self.folder / "memory.failcnt")
            counts |= {} if failures is None else {"max": failures}
        return {key: counts[key] for key in ("high", "max", "oom", "oom_kill") if key in counts}


class CgroupProbe:
    """Records ``cgroup.used_bytes`` once a second, and limit and events as facts."""

    name = "cgroup"

    def __init__(self, root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> None:
        self._root, self._own = Path(root), Path(own)
        self._group: Group | None = None
        self._read_at = 0.0
        self._events: dict[str, int] | None = None

    def __call__(self, recorder: Recorder) -> None:
        """Raises OSError if there is no such group. That stops the probe."""
        now = time.monotonic()
        if self._group is not None and now - self._read_at < SECONDS:
            return
        self._read_at = now
        if self._group is None:
            self._group = find_group(self._root, self._own)
            limit = self._group.limit_bytes
            recorder.fact(Fact.CGROUP, {"version": self._group.version, "limit_bytes": limit})
        recorder.sample("cgroup.used_bytes", bytes=self._group.read_used())
        found = self._group.read_events()
        if found != self._events:
            self._events = found
            recorder.fact(Fact.CGROUP_EVENTS, found)


def find_group(root: Path, own: Path) -> Group:
    """The group of this process, or the one above it, with the lowest limit. Raises OSError."""
    version, top, path = _find_path(root, own.read_text())
    limits = [(limit, folder) for folder in _upwards(top, path) if (limit := _limit(folder))]
    if limits:
        limit, folder = min(limits, key=lambda pair: pair[0])
        return Group(version, folder, limit)
    used = "memory.current" if version == 2 else "memory.usage_in_bytes"
    for folder in _upwards(top, path):
        if (folder / used).exists():
            return Group(version, folder, None)
    raise FileNotFoundError(f"no control group of this process has {used} under {top}")


def _find_path(root: Path, text: str) -> tuple[int, Path, str]:
    """Version, mount and path of the memory controller from /proc/self/cgroup."""
    lines = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return 1, root / "memory", path
    for number, controllers, path in lines:
        if number == "0" and not controllers:
            return 2, root, path
    raise FileNotFoundError("this process is in no control group for memory")


def _upwards(top: Path, path: str) -> list[Path]:
    """Folders from the process's own up to the mount; only the mount inside a namespace."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return [top.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _limit(folder: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        limit = _read_number(folder / name)
        if limit is not None and limit < UNLIMITED:
            return limit
    return None


def _read_number(path: Path) -> int | None:
    try:
        return int(read_kernel_file(path))
    except (OSError, ValueError):  # no such file, or "max"
        return None


def _read_counts(path: Path) -> dict[str, int]:
    try:
        rows = [line.split() for line in read_kernel_file(path).decode().splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
