"""The processes of one run side by side: when each began, what it held, and which one held most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memscope.analysis.summary import Summary
from memscope.units import format_bytes

FIRST_WORDS = 6
ALIKE_SHARE = 0.9  # of what the holder held


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a run. ``offset_s``: when its recording began, by the wall clock, after the
    first one's."""

    path: str
    summary: Summary
    offset_s: float

    @property
    def pid(self) -> int:
        """Its number on its host."""
        return self.summary.header.pid

    @property
    def rank(self) -> int | None:
        """Its place among those of a distributed program; None where it has none."""
        return self.summary.header.rank

    @property
    def device_bytes(self) -> int | None:
        """The most that it held on GPUs; None where not measured."""
        return self.summary.device_bytes

    @property
    def host_bytes(self) -> int | None:
        """The most that it had resident on the host."""
        return self.summary.host_bytes

    @property
    def words(self) -> str:
        """How a sentence calls it."""
        return f"process {self.pid}" if self.rank is None else f"rank {self.rank} ({self.pid})"

    @property
    def command(self) -> str:
        """The first words of its command."""
        words = self.summary.header.command
        return " ".join(words[:FIRST_WORDS]) + (" …" if len(words) > FIRST_WORDS else "")

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints of it."""
        header = self.summary.header
        return {
            "path": self.path,
            "pid": header.pid,
            "rank": header.rank,
            "host": header.host,
            "command": list(header.command),
            "device_bytes": self.device_bytes,
            "host_bytes": self.host_bytes,
            "offset_s": self.offset_s,
            "summary": self.summary.to_json(),
        }


@dataclass(frozen=True, slots=True)
class RunSummary:
    """All processes of a run, the one that was started first."""

    processes: tuple[Process, ...]

    @property
    def first(self) -> Process:
        """The process that was started."""
        return self.processes[0]

    @property
    def is_partial(self) -> bool:
        """Whether a recording of it is."""
        return any(process.summary.state.is_partial for process in self.processes)

    @property
    def holder(self) -> Process | None:
        """The process that held most on devices; None where none held anything."""
        held = [process for process in self.processes if process.device_bytes]
        return max(held, key=lambda process: process.device_bytes or 0, default=None)

    @property
    def sentence(self) -> str | None:
        """Which process holds the memory, where there are several."""
        if len(self.processes) == 1:
            return None
        holder = self.holder
        if holder is None:
            return "No process of this run was seen to hold memory of a device."
        total = sum(process.device_bytes or 0 for process in self.processes)
        share = format_bytes(holder.device_bytes or 0)
        if len(alike := self._alike) > 1:
            least = format_bytes(min(process.device_bytes or 0 for process in alike))
            return (
                f"{len(alike)} processes hold the memory alike: {least} to {share} each at their "
                f"peaks; all peaks add up to {format_bytes(total)}."
            )
        if holder is self.first:
            return f"The process that was started, {holder.pid}, held most: {share} at its peak."
        own = self.first.device_bytes
        started = "none that was measured" if own is None else format_bytes(own)
        return (
            f"Child {holder.pid} holds the memory: {share} at its peak, of {format_bytes(total)} "
            f"that all peaks add up to. The process that was started, {self.first.pid}, held "
            f"{started}."
        )

    @property
    def _alike(self) -> list[Process]:
        """Those that held about as much as the holder."""
        most = (self.holder.device_bytes if self.holder else None) or 0
        return [
            process
            for process in self.processes
            if (process.device_bytes or 0) >= ALIKE_SHARE * most > 0
        ]

    def to_json(self) -> dict[str, Any]:
        """The first process as ever; where there are several, all of them and the holder's pid."""
        first = self.first.summary.to_json()
        if len(self.processes) == 1:
            return first
        return first | {
            "run": self.sentence,
            "holder": self.holder.pid if self.holder else None,
            "processes": [process.to_json() for process in self.processes],
        }


def summarize_run(parts: Sequence[tuple[str, Summary]]) -> RunSummary:
    """The run of these recordings, each with its path; the first process's come first."""
    start_ns = parts[0][1].header.started_at_ns
    return RunSummary(
        tuple(
            Process(path, summary, (summary.header.started_at_ns - start_ns) / 1e9)
            for path, summary in parts
        )
    )
