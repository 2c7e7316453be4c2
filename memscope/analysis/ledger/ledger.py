"""The ledger: who holds every byte of a device at one moment.

The parts of a line always add up to the line, because the remainder is a line too. A line that
could not be measured has a reason instead of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memscope.analysis.ledger.lines import Coverage, LedgerLine, absent, divide, read
from memscope.analysis.ledger.outside import outside_lines
from memscope.analysis.ledger.torch import torch_line
from memscope.analysis.metrics.memory import find_device
from memscope.analysis.timeline.facts import Device, as_count
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import FIRST_DEVICE, DeviceFact, Fact
from memscope.units import format_seconds

MAX_PROCESSES = 16
OLD_NS = 2_000_000_000
NO_PROCESS_BYTES = "the driver does not report memory per process"
_NO_REST = LedgerLine("untold", "", None)  # for lines without a remainder


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger of one device at ``at_ns``, the last event. ``source``: who reported its total."""

    device: int
    name: str
    source: str
    at_ns: int
    total: LedgerLine

    @property
    def lines(self) -> tuple[tuple[int, LedgerLine], ...]:
        """Every line with its depth, from the total down."""
        return tuple(self.total.walk())

    @property
    def coverage(self) -> dict[Coverage, tuple[LedgerLine, ...]]:
        """Coverage → its lines, without lines that are only a remainder."""
        found: dict[Coverage, list[LedgerLine]] = {}
        for _, line in self.lines:
            if not line.is_rest:
                found.setdefault(line.coverage, []).append(line)
        return {coverage: tuple(lines) for coverage, lines in found.items()}

    def find(self, key: str) -> LedgerLine | None:
        """The line with this key; None if there is none."""
        return next((line for _, line in self.lines if line.key == key), None)

    def to_json(self) -> dict[str, Any]:
        """The ledger as ``--json`` prints it."""
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
    """A ledger for each device with readings, as of the last event."""
    device = find_device(timeline)
    if device is not None and device.is_host:
        ledger = _host_ledger(timeline, device)
        return () if ledger is None else (ledger,)
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
    coverage, old = facts.age("nvml.used_bytes")  # NVML gives all of them together
    why = facts.absence("driver_reserved")
    driver = read("driver_reserved", "reserved by the driver", reserved, why, partial=old)
    words = "used" if reserved is not None else "used, including the driver"
    parts = (
        LedgerLine("free", "free", free, coverage, old),
        driver,
        _used_line(facts, LedgerLine("used", words, used, coverage, old)),
    )
    source = "NVML v2" if reserved is not None else "NVML v1"
    root = divide(LedgerLine("total", "device", total), parts, _NO_REST)
    return facts.ledger(source, root)


def _without_nvml(facts: _Facts) -> LedgerLine:
    """The ledger without NVML: only ``mem_get_info`` tells what else is on the GPU."""
    reason = facts.absence("used")
    size, free = facts.bytes("mem_get_info.total_bytes"), facts.bytes("mem_get_info.free_bytes")
    if size is not None and free is not None:
        return _by_runtime(facts, size, free)
    held = facts.own_bytes
    total = facts.count("total_bytes")
    root = LedgerLine(
        "total", "device" if total else "this process, as far as it is known", total or held
    )
    rest = LedgerLine(
        "elsewhere",
        "free, the driver, other processes, outside torch",
        None,
        Coverage.PARTIAL,
        reason,
    )
    return divide(root, (*facts.own_lines,), rest if total else LedgerLine("elsewhere", "", None))


def _by_runtime(facts: _Facts, total: int, free: int) -> LedgerLine:
    """The ledger from the CUDA runtime, whose total leaves out what the driver reserves."""
    words = f"NVML did not report it: {facts.absence('used')}; mem_get_info leaves it out"
    coverage, old = facts.age("mem_get_info.free_bytes")
    parts = (
        LedgerLine("free", "free", free, coverage, old),
        absent("driver_reserved", "reserved by the driver", words),
        _used_line(facts, LedgerLine("used", "used", total - free, coverage, old)),
    )
    return divide(LedgerLine("total", "device, without the driver's part", total), parts, _NO_REST)


def _used_line(facts: _Facts, used: LedgerLine) -> LedgerLine:
    """Used memory by process if the driver reports that, else torch and everything else."""
    process = facts.bytes("nvml.process_bytes")
    if process is None:
        why = facts.absence("process")
        rest = LedgerLine(
            "outside", "outside torch, in this process and others", None, Coverage.PARTIAL, why
        )
        return divide(
            used, (absent("by_process", "memory per process", why), *facts.own_lines), rest
        )
    own = LedgerLine("process", "this process", process, *facts.age("nvml.process_bytes"))
    rest = LedgerLine(
        "no_process",
        "not attributed to any process",
        None,
        Coverage.PARTIAL,
        "used memory minus all processes: the driver's own, and processes that it hides",
    )
    return divide(used, (_process_line(facts, own), *_other_processes(facts)), rest)


def _process_line(facts: _Facts, process: LedgerLine) -> LedgerLine:
    outside = tuple(outside_lines(facts.timeline, facts.device, facts.raw_bytes))
    unknown = [line.words for line in outside if line.bytes is None]
    reason = f"everything else: {', '.join((*unknown, 'stacks of kernels, rounding'))}"
    rest = LedgerLine("unexplained", "unexplained", None, Coverage.PARTIAL, reason)
    return divide(process, (*facts.own_lines, *outside), rest)


def _other_processes(facts: _Facts) -> Iterator[LedgerLine]:
    others = facts.timeline.facts.get(DeviceFact.OTHER_PROCESSES.of(facts.device))
    if not isinstance(others, Mapping):
        return
    sizes = {str(pid): each if isinstance(each, Mapping) else {} for pid, each in others.items()}
    order = sorted(sizes, key=lambda pid: -(as_count(sizes[pid].get("bytes")) or 0))
    for pid in order[:MAX_PROCESSES]:
        command = sizes[pid].get("command")
        words = f"process {pid}" + (f" ({command})" if command else "")
        size = as_count(sizes[pid].get("bytes"))
        yield read(f"process.{pid}", words, size, NO_PROCESS_BYTES)
    left = [as_count(sizes[pid].get("bytes")) for pid in order[MAX_PROCESSES:]]
    if left:
        known = [size for size in left if size is not None]
        partial = "" if len(known) == len(left) else f"some are missing: {NO_PROCESS_BYTES}"
        words, size = f"{len(left)} more processes", sum(known) if known else None
        yield read("processes", words, size, NO_PROCESS_BYTES, partial=partial)


def _raw_lines(timeline: Timeline, held: int) -> LedgerLine:
    """Memory of the program's own driver calls, by its use at the end of the last step."""
    steps = timeline.steps
    line = LedgerLine("raw", "driver calls by this program", held)
    columns = (
        ("raw.resident", "weights ready for compute", "resident_bytes"),
        ("raw.in_flight", "weights in flight", "in_flight_bytes"),
        ("raw.idle", "idle in the weight pool", "idle_bytes"),
        ("raw.kv", "KV cache", "kv_bytes"),
    )
    if not len(steps):
        return line
    parts = [
        LedgerLine(key, words, max(int(getattr(steps, column)[-1]), 0))
        for key, words, column in columns
    ]
    if sum(part.bytes or 0 for part in parts) > held:  # some was given back since
        return line
    return divide(line, parts, LedgerLine("raw.rest", "fixed weights and buffers", None))


def _host_ledger(timeline: Timeline, device: Device) -> Ledger | None:
    """The ledger of a host device: the memory that it handed out, and what its limit leaves."""
    reading = timeline.latest("device.allocated_bytes")
    held = int(reading.value) if reading is not None else timeline.driver.bytes
    if device.usable_bytes is None or (reading is None and not timeline.driver.calls):
        return None
    root = LedgerLine("total", "limit of this host device", device.usable_bytes)
    rest = LedgerLine("free", "free", None)
    whole = divide(root, (_raw_lines(timeline, held),), rest)
    return Ledger(-1, device.name, "the program", timeline.last_ns, whole)


class _Facts:
    """Readings of one GPU, and reasons for missing ones."""

    def __init__(self, timeline: Timeline, device: int) -> None:
        self.timeline, self.device = timeline, device
        first = find_device(timeline)
        self.name = str(
            timeline.fact(DeviceFact.CUDA.of(device), "name") or (first.name if first else "GPU")
        )
        self.raw_bytes = timeline.driver.bytes if self._has_raw else 0

    @property
    def _has_raw(self) -> bool:
        """Whether the program's own driver calls are on this GPU: the runner names the device."""
        name = str(self.timeline.fact(FIRST_DEVICE, "device") or "cuda:0")
        found = re.search(r"\d+$", name)
        return bool(self.timeline.driver.calls) and self.device == int(found[0] if found else 0)

    @property
    def _absent(self) -> Mapping[str, object]:
        """Reading that NVML did not give → the reason."""
        reasons = self.timeline.fact(Fact.NVML, "absent")
        return reasons if isinstance(reasons, Mapping) else {}

    def bytes(self, reading_name: str) -> int | None:
        """The last reading of this name on this GPU in bytes; None if there is none."""
        reading = self.timeline.latest(reading_name, self.device)
        return None if reading is None else int(reading.value)

    def count(self, field: str) -> int | None:
        """One field of the fact that describes this GPU."""
        size = self.timeline.count_fact(DeviceFact.CUDA.of(self.device), field)
        return size if size is not None else self.timeline.count_fact(FIRST_DEVICE, field)

    def age(self, reading_name: str) -> tuple[Coverage, str]:
        """Coverage of a reading, with a reason if it is old or older than its parts."""
        reading = self.timeline.latest(reading_name, self.device)
        if reading is None:
            return Coverage.MEASURED, ""
        age = self.timeline.last_ns - reading.t_ns
        earlier = self.timeline.driver.last_ns - reading.t_ns if self._has_raw else 0
        if earlier > 0:
            words = (
                f"read {format_seconds(earlier / 1e9)} before the last driver call by this program"
            )
            return Coverage.PARTIAL, words
        key = f"cuda:{self.device}"
        why = f": {self._absent[key]}" if key in self._absent else ""
        is_old = age > OLD_NS or (why and reading_name.startswith("nvml."))
        return (
            (Coverage.PARTIAL, f"read {age / 1e9:.1f} s before{why}")
            if is_old
            else (Coverage.MEASURED, "")
        )

    def absence(self, what: str) -> str:
        """Why NVML did not give a reading."""
        for key in (f"nvml.{what}_bytes", f"cuda:{self.device}", "nvml"):
            if key in self._absent:
                return str(self._absent[key])
        return "NVML's reading is not recorded"

    @property
    def own_bytes(self) -> int:
        """Bytes that torch and the runner hold."""
        return sum(line.bytes or 0 for line in self.own_lines)

    @property
    def own_lines(self) -> tuple[LedgerLine, ...]:
        """Lines of torch and of the program's own driver calls, and the driver's rounding."""
        lines = [torch_line(self.timeline, self.device)]
        if self._has_raw:
            rounding = self.timeline.driver.rounded_bytes - self.timeline.driver.bytes
            lines.append(_raw_lines(self.timeline, self.raw_bytes))
            why = "for driver calls above 1 MiB; smaller ones share 2 MiB"
            lines.append(
                LedgerLine("rounding", "rounding up to 2 MiB", rounding, Coverage.PARTIAL, why)
            )
        return tuple(lines)

    def ledger(self, source: str, total: LedgerLine) -> Ledger:
        """The ledger of this GPU."""
        return Ledger(self.device, self.name, source, self.timeline.last_ns, total)
