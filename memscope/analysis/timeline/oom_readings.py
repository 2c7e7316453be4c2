"""The last readings before the last out-of-memory error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from memscope.analysis.timeline.facts import as_count
from memscope.analysis.timeline.readings import MAX_DEVICES, Reading
from memscope.events import Kind
from memscope.facts import DeviceFact
from memscope.text import clean
from memscope.units import torch_size

if TYPE_CHECKING:
    from memscope.analysis.timeline.readings import Readings
    from memscope.analysis.timeline.samples import Samples
    from memscope.reader.scanner import Batch

READINGS = (
    "nvml.total_bytes",
    "nvml.free_bytes",
    "nvml.process_bytes",
    "torch.allocated_bytes",
    "torch.reserved_bytes",
    "torch.inactive_split_bytes",
    "mem_get_info.free_bytes",
)
_NAMES = 3
_OF_THIS_PROCESS = ("nvml.process_bytes", "torch.reserved_bytes")


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """Another process on a GPU. ``bytes`` is None if the driver does not report it."""

    pid: str
    command: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class ReadingsBefore:
    """The last readings up to ``t_ns``, by name and device; other processes by device."""

    t_ns: int
    readings: Mapping[tuple[str, int], Reading]
    others: Mapping[int, tuple[OtherProcess, ...]]

    def count(self, reading_name: str, device: int) -> int | None:
        """The last reading in bytes; None if there is none."""
        reading = self.readings.get((reading_name, device))
        return None if reading is None else as_count(int(reading.value))

    def age_ns(self, reading_name: str, device: int) -> int | None:
        """Age of the last reading in ns at ``t_ns``; None if there is none."""
        reading = self.readings.get((reading_name, device))
        return None if reading is None else self.t_ns - reading.t_ns

    def others_on(self, device: int) -> tuple[OtherProcess, ...]:
        """Other processes on ``device``, the largest first.

        Empty if the driver never reported this process: in a container it may be one of
        them.
        """
        is_told_apart = ("nvml.process_bytes", device) in self.readings
        return self.others.get(device, ()) if is_told_apart else ()

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices that this process used; all devices with readings if none shows its use."""
        used = {
            device
            for (reading_name, device), reading in self.readings.items()
            if reading_name in _OF_THIS_PROCESS and reading.value > 0
        }
        return tuple(sorted(used or {device for _, device in self.readings}))


def name_processes(processes: Sequence[OtherProcess]) -> str:
    """The first few processes in words; "" if there are none."""
    shown = [
        f"process {clean(each.pid, 20)}"
        + (f", {clean(each.command, 40)}" if each.command else "")
        + (f": {torch_size(each.bytes)}" if each.bytes is not None else "")
        for each in processes[:_NAMES]
    ]
    more = len(processes) - _NAMES
    return "; ".join(shown) + (f"; and {more:,} more" if more > 0 else "")


class OomReadings:
    """Folds batches into ``last``: readings before the program's last out-of-memory error."""

    def __init__(self) -> None:
        self.last: ReadingsBefore | None = None
        self._others: dict[int, tuple[OtherProcess, ...]] = {}

    def add(self, batch: Batch, samples: Samples, before: Readings, most: int) -> None:
        """Fold one batch.

        ``before``: readings from earlier batches. ``most``: number of errors that are still
        kept.
        """
        told = [*_other_process_facts(batch)]
        row = _last_error(batch, most)
        if row is not None:
            t_ns = int(batch["t_ns"][row])
            others = self._others | {
                device: listed for at_ns, device, listed in told if at_ns <= t_ns
            }
            self.last = ReadingsBefore(t_ns, _readings_until(t_ns, samples, before), others)
        self._others |= {device: listed for _, device, listed in told}


def _last_error(batch: Batch, most: int) -> int | None:
    rows = batch.where(Kind.OOM)[: max(most, 0)].tolist()
    return next((row for row in reversed(rows) if not _is_of_request(batch.data(row))), None)


def _is_of_request(data: object) -> bool:
    return isinstance(data, Mapping) and data.get("scope") == "request"


def _readings_until(
    t_ns: int, samples: Samples, before: Readings
) -> dict[tuple[str, int], Reading]:
    readings = {
        (reading_name, device): reading
        for reading_name in READINGS
        for device in before.devices[:MAX_DEVICES]
        if (reading := before.latest(reading_name, device)) is not None and reading.t_ns <= t_ns
    }
    number = samples.number({name: index for index, name in enumerate(READINGS)})
    is_known = (number >= 0) & (samples.t_ns <= t_ns) & (samples.bytes >= 0) & (samples.device >= 0)
    number, samples = number[is_known], samples.where(is_known)
    for index, reading_name in enumerate(READINGS):
        mine = samples.where(number == index)
        for device in np.unique(mine.device).tolist()[:MAX_DEVICES]:
            last = np.flatnonzero(mine.device == device)[-1]
            reading = Reading(int(mine.t_ns[last]), float(mine.bytes[last]))
            readings[reading_name, device] = reading
    return readings


def _other_process_facts(batch: Batch) -> list[tuple[int, int, tuple[OtherProcess, ...]]]:
    """Time, device and processes of each fact about other processes."""
    codes, names = batch.names
    keys = DeviceFact.OTHER_PROCESSES.devices(names)
    devices = {names.index(key): device for device, key in keys.items() if device < MAX_DEVICES}
    rows = batch.where(Kind.FACT)
    rows = rows[np.isin(codes[rows], list(devices))] if devices else rows[:0]
    return [
        (int(batch["t_ns"][row]), devices[int(codes[row])], _listed(batch.data(row)))
        for row in rows.tolist()
    ]


def _listed(data: Any) -> tuple[OtherProcess, ...]:
    """The processes on one GPU, the largest first."""
    entries = data if isinstance(data, Mapping) else {}
    listed = [
        OtherProcess(str(pid), str(entry.get("command") or ""), as_count(entry.get("bytes")))
        for pid, entry in entries.items()
        if isinstance(entry, Mapping)
    ]
    return tuple(sorted(listed, key=lambda process: -(process.bytes or 0)))
