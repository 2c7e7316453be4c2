"""The processes of one run side by side: when each began, what it held, which one to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memscope.analysis.summary.summary import Summary
from memscope.units import format_bytes

FIRST_WORDS = 6
ALIKE_SHARE = 0.9  # of what the holder held
OTHER, IN_RANKS, WITH_STEPS, ON_DEVICE = range(4)  # kinds of processes


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
        """The most that it held on GPUs, the peaks of all added; None where not measured."""
        return self.summary.device_bytes

    @property
    def device_words(self) -> str:
        """The same as a table says it."""
        return self.summary.held_words

    @property
    def host_bytes(self) -> int | None:
        """The most that it had resident on the host."""
        return self.summary.host_bytes

    @property
    def has_used_device(self) -> bool:
        """Whether a GPU is known of it, on which it held something as far as was measured."""
        device = self.summary.device
        return device is not None and not device.is_host and self.device_bytes != 0

    @property
    def kind(self) -> int:
        """What it is, the more telling the higher: one that used a device, one with steps, a rank,
        or none of these, as a launcher is."""
        if self.has_used_device:
            return ON_DEVICE
        if self.summary.own_steps:
            return WITH_STEPS
        return IN_RANKS if self.rank is not None else OTHER

    @property
    def held_bytes(self) -> int | None:
        """The most that it held where its ``kind`` holds it: on devices, else on the host."""
        return self.device_bytes if self.kind == ON_DEVICE else self.host_bytes

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
            "device_peaks": {
                f"cuda:{index}": size for index, size in self.summary.device_peaks.items()
            },
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
    def holder(self) -> Process:
        """The process to look at first, everywhere: of the most telling kind, the one that held
        most; of equals the lowest rank, then the one that began first."""
        return max(self.processes, key=_precedence)

    @property
    def by_interest(self) -> tuple[Process, ...]:
        """The holder, then the others by kind; of a kind as they began."""
        holder = self.holder
        others = [process for process in self.processes if process is not holder]
        return (holder, *sorted(others, key=lambda process: -process.kind))

    def is_alike(self, process: Process) -> bool:
        """Whether ``process`` is of the holder's kind and held about as much."""
        return _are_alike(process, self.holder)

    @property
    def sentence(self) -> str | None:
        """Which process holds the memory, where there are several."""
        if len(self.processes) == 1:
            return None
        if self.holder.kind != ON_DEVICE:
            none = "No process of this run was seen to hold memory of a device."
            return " ".join(filter(None, (none, self._on_host)))
        if self.holder.device_bytes is None:
            return "Devices were used, but how much of them was held is not measured."
        return " ".join(filter(None, (self._on_device, self._uncounted)))

    @property
    def measure(self) -> str | None:
        """What the peaks of the table are, beside the metric of a process; None without any."""
        if all(process.device_bytes is None for process in self.processes):
            return None
        return (
            "Peak, all GPUs: by the driver's count, CUDA's own part in it (without one: what the "
            "program took), GPUs added up. memory.peak_bytes: what the program took, on the one "
            "GPU that has most."
        )

    @property
    def _on_device(self) -> str:
        total = format_bytes(sum(process.device_bytes or 0 for process in self.processes))
        if len(alike := self._alike) > 1:
            return (
                f"{len(alike)} processes hold the memory alike: {_range(alike)} each at their "
                f"peaks; all peaks add up to {total}."
            )
        holder, first = self.holder, self.first
        share = format_bytes(holder.held_bytes or 0)
        if holder is first:
            return f"The process that was started, {holder.pid}, held most: {share} at its peak."
        own = first.device_bytes
        started = "none that was measured" if own is None else format_bytes(own)
        return (
            f"Child {holder.pid} holds the memory: {share} at its peak, of {total} that all peaks "
            f"add up to. The process that was started, {first.pid}, held {started}."
        )

    @property
    def _uncounted(self) -> str | None:
        """Who used a GPU besides, but how much of it is not measured, and why not."""
        others = [
            each for each in self.processes if each.kind == ON_DEVICE and each.device_bytes is None
        ]
        if not others:
            return None
        who = f"{others[0].words} held of a GPU"
        if len(others) > 1:
            who = f"{len(others)} processes held of GPUs"
        reasons = dict.fromkeys(each.summary.metrics["memory.peak_bytes"].reason for each in others)
        return f"What {who} is not counted: {'; '.join(filter(None, reasons))}."

    @property
    def _on_host(self) -> str | None:
        """Who held most on the host, of those that the holder is one of; None if not measured."""
        if self.holder.held_bytes is None:
            return None
        of = {WITH_STEPS: "with steps", IN_RANKS: "with a rank"}.get(self.holder.kind, "of the run")
        if len(alike := self._alike) > 1:
            return f"{len(alike)} processes {of} are alike in peak host RSS: {_range(alike)} each."
        share = format_bytes(self.holder.held_bytes)
        return f"Of the processes {of}, {self.holder.words} has the highest peak host RSS: {share}."

    @property
    def _alike(self) -> list[Process]:
        """Those that held about as much as the holder, itself among them."""
        holder = self.holder  # found once, not for each of many
        return [process for process in self.processes if _are_alike(process, holder)]

    def to_json(self) -> dict[str, Any]:
        """The first process as ever; where there are several, all of them and the holder's pid."""
        first = self.first.summary.to_json()
        if len(self.processes) == 1:
            return first
        return first | {
            "run": self.sentence,
            "holder": self.holder.pid,
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


def _are_alike(process: Process, holder: Process) -> bool:
    is_near = (process.held_bytes or 0) >= ALIKE_SHARE * (holder.held_bytes or 0)
    return process.kind == holder.kind and is_near


def _precedence(process: Process) -> tuple[int, int, float]:
    lowest = -process.rank if process.rank is not None else float("-inf")
    return (process.kind, process.held_bytes or 0, lowest)


def _range(processes: Sequence[Process]) -> str:
    """What the processes held, from the least to the most."""
    sizes = [process.held_bytes or 0 for process in processes]
    least, most = format_bytes(min(sizes)), format_bytes(max(sizes))
    return least if least == most else f"{least} to {most}"
