"""The ledger: every byte of a device in the line of who took it, at one moment.

A partition by construction: what a line's parts leave of it is a line of its own. What nobody can
tell has its reason and no bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memscope.analysis.ledger.lines import MEASURED, PARTIAL, Line, absent, divide, read
from memscope.analysis.ledger.outside import outside_lines
from memscope.analysis.ledger.torch import torch_line
from memscope.analysis.metrics.memory import find_device
from memscope.analysis.timeline.facts import Device, as_count
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import FIRST_DEVICE, DeviceFact, Fact
from memscope.units import format_seconds

MAX_PROCESSES = 16
OLD_NS = 2_000_000_000
UNTOLD_PROCESS = "the driver gives no memory of a process"
_UNTOLD = Line("untold", "", None)  # what is left of a partition that is one by itself: nothing


@dataclass(frozen=True, slots=True)
class Ledger:
    """One device. ``source`` says who told its total; ``at_ns`` is the last event's time."""

    device: int
    name: str
    source: str
    at_ns: int
    total: Line

    @property
    def lines(self) -> tuple[tuple[int, Line], ...]:
        """Every line with its depth, from the total down."""
        return tuple(self.total.walk())

    @property
    def coverage(self) -> dict[str, tuple[Line, ...]]:
        """Measured, partial, not measurable → the lines; what is a mere rest is in none."""
        found: dict[str, list[Line]] = {}
        for _, line in self.lines:
            if not line.is_rest:
                found.setdefault(line.coverage, []).append(line)
        return {coverage: tuple(lines) for coverage, lines in found.items()}

    def find(self, key: str) -> Line | None:
        """The line of a key."""
        return next((line for _, line in self.lines if line.key == key), None)

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        return {
            "device": self.device,
            "name": self.name,
            "source": self.source,
            "at_s": self.at_ns / 1e9,
            "lines": [
                {
                    "key": line.key,
                    "words": line.words,
                    "depth": depth,
                    "bytes": line.bytes,
                    "coverage": line.coverage,
                    "reason": line.reason or None,
                    "is_rest": line.is_rest,
                }
                for depth, line in self.lines
            ],
        }


def make_ledgers(timeline: Timeline) -> tuple[Ledger, ...]:
    """One for each device that something is known of, as it stood at the last event."""
    device = find_device(timeline)
    if device is not None and device.is_host:
        found = _host_ledger(timeline, device)
        return () if found is None else (found,)
    used = [each for each in timeline.devices if _is_known(timeline, each)]
    if not used and timeline.driver.calls and device is not None:
        used = [0]
    return tuple(_gpu_ledger(timeline, each) for each in used)


def _is_known(timeline: Timeline, device: int) -> bool:
    reading_names = ("torch.reserved_bytes", "nvml.used_bytes")
    return any(timeline.latest(reading_name, device) is not None for reading_name in reading_names)


def _gpu_ledger(timeline: Timeline, device: int) -> Ledger:
    facts = _Facts(timeline, device)
    total, free, used = (facts.bytes(f"nvml.{name}_bytes") for name in ("total", "free", "used"))
    if total is None or free is None or used is None:
        runtime = facts.bytes("mem_get_info.free_bytes") is not None
        source = "mem_get_info" if runtime else "the device's own size"
        return facts.ledger(source, _without_nvml(facts))
    reserved = facts.bytes("nvml.driver_reserved_bytes")
    coverage, old = facts.age("nvml.used_bytes")  # which NVML gives together with the others
    why = facts.absence("driver_reserved")
    driver = read("driver_reserved", "reserved by the driver", reserved, why, partial=old)
    words = "used" if reserved is not None else "used, the driver's part included"
    parts = (
        Line("free", "free", free, coverage, old),
        driver,
        _used_line(facts, Line("used", words, used, coverage, old)),
    )
    source = "NVML v2" if reserved is not None else "NVML v1"
    root = divide(Line("total", "device", total), parts, _UNTOLD)
    return facts.ledger(source, root)


def _without_nvml(facts: _Facts) -> Line:
    """Torch alone: what else is on the card cannot be told, but by ``mem_get_info``."""
    reason = facts.absence("used")
    size, free = facts.bytes("mem_get_info.total_bytes"), facts.bytes("mem_get_info.free_bytes")
    if size is not None and free is not None:
        return _by_runtime(facts, size, free)
    held = facts.own_bytes
    total = facts.count("total_bytes")
    root = Line("total", "device" if total else "this process, as far as known", total or held)
    rest = Line("elsewhere", "free, driver, other processes, outside torch", None, PARTIAL, reason)
    return divide(root, (*facts.own_lines,), rest if total else Line("elsewhere", "", None))


def _by_runtime(facts: _Facts, total: int, free: int) -> Line:
    """The CUDA runtime's total leaves out what the driver keeps for itself."""
    words = f"NVML does not tell: {facts.absence('used')}; mem_get_info leaves it out of its total"
    coverage, old = facts.age("mem_get_info.free_bytes")
    parts = (
        Line("free", "free", free, coverage, old),
        absent("driver_reserved", "reserved by the driver", words),
        _used_line(facts, Line("used", "used", total - free, coverage, old)),
    )
    return divide(Line("total", "device, less the driver's part", total), parts, _UNTOLD)


def _used_line(facts: _Facts, used: Line) -> Line:
    """By process, where the driver tells; else what torch holds and what is outside of it."""
    process = facts.bytes("nvml.process_bytes")
    if process is None:
        why = facts.absence("process")
        rest = Line("outside", "outside torch, of this process and others", None, PARTIAL, why)
        return divide(
            used, (absent("by_process", "what each process took", why), *facts.own_lines), rest
        )
    own = Line("process", "this process", process, *facts.age("nvml.process_bytes"))
    rest = Line(
        "no_process",
        "in no process's metric",
        None,
        PARTIAL,
        "used less all processes: what the driver keeps for itself, and processes it hides",
    )
    return divide(used, (_process_line(facts, own), *_other_processes(facts)), rest)


def _process_line(facts: _Facts, process: Line) -> Line:
    outside = tuple(outside_lines(facts.timeline, facts.device, facts.raw_bytes))
    unknown = [line.words for line in outside if line.bytes is None]
    reason = f"what no other line holds: {', '.join((*unknown, 'stacks of kernels, rounding'))}"
    rest = Line("unexplained", "unexplained", None, PARTIAL, reason)
    return divide(process, (*facts.own_lines, *outside), rest)


def _other_processes(facts: _Facts) -> Iterator[Line]:
    others = facts.timeline.facts.get(DeviceFact.OTHER_PROCESSES.of(facts.device))
    if not isinstance(others, Mapping):
        return
    sizes = {str(pid): each if isinstance(each, Mapping) else {} for pid, each in others.items()}
    order = sorted(sizes, key=lambda pid: -(as_count(sizes[pid].get("bytes")) or 0))
    for pid in order[:MAX_PROCESSES]:
        command = sizes[pid].get("command")
        words = f"process {pid}" + (f" ({command})" if command else "")
        size = as_count(sizes[pid].get("bytes"))
        yield read(f"process.{pid}", words, size, UNTOLD_PROCESS)
    left = [as_count(sizes[pid].get("bytes")) for pid in order[MAX_PROCESSES:]]
    if left:
        known = [size for size in left if size is not None]
        partial = "" if len(known) == len(left) else f"without some: {UNTOLD_PROCESS}"
        words, size = f"{len(left)} more processes", sum(known) if known else None
        yield read("processes", words, size, UNTOLD_PROCESS, partial=partial)


def _raw_lines(timeline: Timeline, held: int) -> Line:
    """What driver calls took, by what was in it at the last step's end, if all is still there."""
    steps = timeline.steps
    line = Line("raw", "driver calls of this program", held)
    columns = (
        ("raw.resident", "weights ready", "resident_bytes"),
        ("raw.in_flight", "weights in flight", "in_flight_bytes"),
        ("raw.idle", "idle in the weight pool", "idle_bytes"),
        ("raw.kv", "KV cache", "kv_bytes"),
    )
    if not len(steps):
        return line
    parts = [
        Line(key, words, max(int(getattr(steps, column)[-1]), 0)) for key, words, column in columns
    ]
    if sum(part.bytes or 0 for part in parts) > held:  # given back since
        return line
    return divide(line, parts, Line("raw.rest", "fixed weights and buffers", None))


def _host_ledger(timeline: Timeline, device: Device) -> Ledger | None:
    """A host device: what it handed out, of the limit that it holds to."""
    reading = timeline.latest("device.allocated_bytes")
    held = int(reading.value) if reading is not None else timeline.driver.bytes
    if device.usable_bytes is None or (reading is None and not timeline.driver.calls):
        return None
    root = Line("total", "limit of this host device", device.usable_bytes)
    rest = Line("free", "free", None)
    whole = divide(root, (_raw_lines(timeline, held),), rest)
    return Ledger(-1, device.name, "the program", timeline.last_ns, whole)


class _Facts:
    """Readings and reasons of one GPU."""

    def __init__(self, timeline: Timeline, device: int) -> None:
        self.timeline, self.device = timeline, device
        first = find_device(timeline)
        self.name = str(
            timeline.fact(DeviceFact.CUDA.of(device), "name") or (first.name if first else "GPU")
        )
        self.raw_bytes = timeline.driver.bytes if self._has_raw else 0

    @property
    def _has_raw(self) -> bool:
        """Driver calls carry no device; they are the runner's, on the device that it names."""
        name = str(self.timeline.fact(FIRST_DEVICE, "device") or "cuda:0")
        found = re.search(r"\d+$", name)
        return bool(self.timeline.driver.calls) and self.device == int(found[0] if found else 0)

    @property
    def _absent(self) -> Mapping[str, object]:
        """What NVML did not tell, and why."""
        reasons = self.timeline.fact(Fact.NVML, "absent")
        return reasons if isinstance(reasons, Mapping) else {}

    def bytes(self, reading_name: str) -> int | None:
        """The last reading; what was read without a device is the first one's."""
        reading = self.timeline.latest(reading_name, self.device)
        return None if reading is None else int(reading.value)

    def count(self, field: str) -> int | None:
        """Of the fact that describes this device."""
        size = self.timeline.count_fact(DeviceFact.CUDA.of(self.device), field)
        return size if size is not None else self.timeline.count_fact(FIRST_DEVICE, field)

    def age(self, reading_name: str) -> tuple[str, str]:
        """Coverage and reason of a reading that may be old, or older than what it is divided by."""
        reading = self.timeline.latest(reading_name, self.device)
        if reading is None:
            return MEASURED, ""
        age = self.timeline.last_ns - reading.t_ns
        earlier = self.timeline.driver.last_ns - reading.t_ns if self._has_raw else 0
        if earlier > 0:
            words = (
                f"read {format_seconds(earlier / 1e9)} before the last driver call of this program"
            )
            return PARTIAL, words
        key = f"cuda:{self.device}"
        why = f": {self._absent[key]}" if key in self._absent else ""
        is_old = age > OLD_NS or (why and reading_name.startswith("nvml."))
        return (PARTIAL, f"read {age / 1e9:.1f} s before{why}") if is_old else (MEASURED, "")

    def absence(self, what: str) -> str:
        """Why NVML did not tell something."""
        for key in (f"nvml.{what}_bytes", f"cuda:{self.device}", "nvml"):
            if key in self._absent:
                return str(self._absent[key])
        return "NVML's metric is not recorded"

    @property
    def own_bytes(self) -> int:
        """Torch's and the runner's own."""
        return sum(line.bytes or 0 for line in self.own_lines)

    @property
    def own_lines(self) -> tuple[Line, ...]:
        """Torch reserved, driver calls, and what the driver rounds these up by."""
        lines = [torch_line(self.timeline, self.device)]
        if self._has_raw:
            rounding = self.timeline.driver.rounded_bytes - self.timeline.driver.bytes
            lines.append(_raw_lines(self.timeline, self.raw_bytes))
            why = "of driver calls above 1 MiB; smaller ones share granules"
            lines.append(Line("rounding", "rounded up to 2 MiB", rounding, PARTIAL, why))
        return tuple(lines)

    def ledger(self, source: str, total: Line) -> Ledger:
        """The ledger of this device."""
        return Ledger(self.device, self.name, source, self.timeline.last_ns, total)
