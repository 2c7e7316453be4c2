"""The processes of one run: when each began, what it held, and which one to show first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from memscope.analysis.summary.summary import Summary
from memscope.units import format_bytes

FIRST_WORDS = 6
ALIKE_SHARE = 0.9  # of the memory of the process shown first


class ProcessKind(IntEnum):
    """What a process does. Views open on the process with the highest kind."""

    OTHER = 0  # a launcher, for example
    IN_RANKS = 1  # has a rank
    WITH_STEPS = 2  # has steps
    ON_DEVICE = 3  # used a GPU


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a run. Its recording began ``offset_s`` after the first one, by wall clock."""

    path: str
    summary: Summary
    offset_s: float

    @property
    def pid(self) -> int:
        """The process id."""
        return self.summary.header.pid

    @property
    def rank(self) -> int | None:
        """Its rank in a distributed program; None if it has none."""
        return self.summary.header.rank

    @property
    def device_bytes(self) -> int | None:
        """The peaks on all GPUs, added up; None if not measured."""
        return self.summary.device_bytes

    @property
    def device_words(self) -> str:
        """``device_bytes`` as text for a table."""
        return self.summary.held_words

    @property
    def host_bytes(self) -> int | None:
        """Its peak resident memory on the host; None if not measured."""
        return self.summary.host_bytes

    @property
    def has_used_device(self) -> bool:
        """Whether it used a GPU and, if that was measured, held memory there."""
        device = self.summary.device
        return device is not None and not device.is_host and self.device_bytes != 0

    @property
    def kind(self) -> ProcessKind:
        """What the process does."""
        if self.has_used_device:
            return ProcessKind.ON_DEVICE
        if self.summary.own_steps:
            return ProcessKind.WITH_STEPS
        return ProcessKind.OTHER if self.rank is None else ProcessKind.IN_RANKS

    @property
    def held_bytes(self) -> int | None:
        """Its peak memory: on GPUs if it used one, else on the host."""
        return self.device_bytes if self.kind is ProcessKind.ON_DEVICE else self.host_bytes

    @property
    def words(self) -> str:
        """Its name in a sentence."""
        return f"process {self.pid}" if self.rank is None else f"rank {self.rank} ({self.pid})"

    @property
    def command(self) -> str:
        """The first words of its command."""
        words = self.summary.header.command
        return " ".join(words[:FIRST_WORDS]) + (" …" if len(words) > FIRST_WORDS else "")

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        header = self.summary.header
        return {
            "path": self.path,
            "pid": header.pid,
            "rank": header.rank,
            "host": header.host,
            "command": list(header.command),
            "device_bytes": self.device_bytes,
            "device_peaks": {
                f"cuda:{index}": size for index, size in self.summary.device_peaks.items()
            },
            "host_bytes": self.host_bytes,
            "offset_s": self.offset_s,
            "summary": self.summary.to_json(),
        }


@dataclass(frozen=True, slots=True)
class RunSummary:
    """All processes of a run. The first is the one that was started first."""

    processes: tuple[Process, ...]

    @property
    def first(self) -> Process:
        """The process that was started."""
        return self.processes[0]

    @property
    def is_partial(self) -> bool:
        """Whether a recording of the run is partial."""
        return any(process.summary.state.is_partial for process in self.processes)

    @property
    def holder(self) -> Process:
        """The process that each view opens on: the one with the most memory, of the highest kind.

        If several are equal: the lowest rank, then the one that began first.
        """
        return max(self.processes, key=_precedence)

    @property
    def by_interest(self) -> tuple[Process, ...]:
        """``holder`` first, then the others by kind; within a kind in the order they began."""
        holder = self.holder
        others = [process for process in self.processes if process is not holder]
        return (holder, *sorted(others, key=lambda process: -process.kind))

    def is_alike(self, process: Process) -> bool:
        """Whether ``process`` has the kind of ``holder`` and held about as much memory."""
        return _are_alike(process, self.holder)

    @property
    def sentence(self) -> str | None:
        """Which process holds the memory; None if there is only one process."""
        if len(self.processes) == 1:
            return None
        if self.holder.kind is not ProcessKind.ON_DEVICE:
            none = "No process of this run held GPU memory, as far as was measured."
            return " ".join(filter(None, (none, self._on_host)))
        if self.holder.device_bytes is None:
            return "GPUs were used, but how much memory was held there was not measured."
        return " ".join(filter(None, (self._on_device, self._uncounted)))

    @property
    def measure(self) -> str | None:
        """How the peaks in the table are counted; None if there are none."""
        if all(process.device_bytes is None for process in self.processes):
            return None
        return (
            '"peak, all GPUs" adds up the GPUs as the driver counts them, with CUDA\'s own memory '
            "(without a driver's count: what the program allocated). memory.peak_bytes is what the "
            "program allocated on the GPU with the most."
        )

    @property
    def _on_device(self) -> str:
        total = format_bytes(sum(process.device_bytes or 0 for process in self.processes))
        if len(alike := self._alike) > 1:
            return (
                f"{len(alike)} processes held about the same: {_range(alike)} each at their "
                f"peaks. All peaks add up to {total}."
            )
        holder, first = self.holder, self.first
        share = format_bytes(holder.held_bytes or 0)
        if holder is first:
            return f"The first process, {holder.pid}, held the most: {share} at its peak."
        own = first.device_bytes
        started = "nothing that was measured" if own is None else format_bytes(own)
        return (
            f"Child process {holder.pid} held the most: {share} at its peak. All peaks add up to "
            f"{total}. The first process, {first.pid}, held {started}."
        )

    @property
    def _uncounted(self) -> str | None:
        """Which processes used a GPU but were not measured, and why."""
        others = [
            each
            for each in self.processes
            if each.kind is ProcessKind.ON_DEVICE and each.device_bytes is None
        ]
        if not others:
            return None
        who = f"{others[0].words} held on a GPU"
        if len(others) > 1:
            who = f"{len(others)} processes held on GPUs"
        reasons = dict.fromkeys(each.summary.metrics["memory.peak_bytes"].reason for each in others)
        return f"What {who} is not counted: {'; '.join(filter(None, reasons))}."

    @property
    def _on_host(self) -> str | None:
        """Which process of the same kind held the most on the host; None if unknown."""
        if self.holder.held_bytes is None:
            return None
        of = {ProcessKind.WITH_STEPS: "with steps", ProcessKind.IN_RANKS: "with a rank"}.get(
            self.holder.kind, "of the run"
        )
        if len(alike := self._alike) > 1:
            sizes = _range(alike)
            return f"{len(alike)} processes {of} have about the same peak host RSS: {sizes} each."
        share = format_bytes(self.holder.held_bytes)
        return (
            f"Among the processes {of}, {self.holder.words} has the highest peak host RSS: {share}."
        )

    @property
    def _alike(self) -> list[Process]:
        """``holder`` and the processes that held about as much."""
        holder = self.holder  # found once, not for each of many
        return [process for process in self.processes if _are_alike(process, holder)]

    def to_json(self) -> dict[str, Any]:
        """The first process's summary. If there are several, also all of them and the holder."""
        first = self.first.summary.to_json()
        if len(self.processes) == 1:
            return first
        return first | {
            "run": self.sentence,
            "holder": self.holder.pid,
            "processes": [process.to_json() for process in self.processes],
        }


def summarize_run(parts: Sequence[tuple[str, Summary]]) -> RunSummary:
    """The run of these recordings, given as path and summary. The first process comes first."""
    start_ns = parts[0][1].header.started_at_ns
    return RunSummary(
        tuple(
            Process(path, summary, (summary.header.started_at_ns - start_ns) / 1e9)
            for path, summary in parts
        )
    )


def _are_alike(process: Process, holder: Process) -> bool:
    is_near = (process.held_bytes or 0) >= ALIKE_SHARE * (holder.held_bytes or 0)
    return process.kind == holder.kind and is_near


def _precedence(process: Process) -> tuple[int, int, float]:
    lowest = -process.rank if process.rank is not None else float("-inf")
    return (process.kind, process.held_bytes or 0, lowest)


def _range(processes: Sequence[Process]) -> str:
    """The range of what the processes held."""
    sizes = [process.held_bytes or 0 for process in processes]
    least, most = format_bytes(min(sizes)), format_bytes(max(sizes))
    return least if least == most else f"{least} to {most}"
