"""A series for each reading, and the bytes that driver calls hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from memscope.analysis.timeline.series import Series, SeriesBuilder
from memscope.events import Kind

if TYPE_CHECKING:
    from memscope.analysis.timeline.samples import Samples
    from memscope.analysis.timeline.sums import Sums
    from memscope.reader.scanner import Batch

Numbers = npt.NDArray[np.int64]
Held = dict[str, tuple[int, int]]  # owner → bytes, buffers

MAX_SERIES = 256
MAX_LATEST = 4096
BY_DEVICE = ("nvml.process_bytes", "torch.reserved_bytes")
MAX_DEVICES = 64
GRANULE_BYTES = 2 << 20
"""What cudaMalloc takes whole above 1 MiB (measured; not documented)."""
MAX_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading, in bytes or in the unit that its name says."""

    t_ns: int
    value: float


class Readings:
    """A series for each of the first ``MAX_SERIES`` readings."""

    def __init__(self) -> None:
        self._builders: dict[str, SeriesBuilder] = {}
        self._latest: dict[tuple[str, int], Reading] = {}
        self._by_device: dict[tuple[str, int], SeriesBuilder] = {}
        self.ignored_rows = 0

    def add(self, samples: Samples) -> None:
        """Add the readings of one batch. Rows with neither bytes nor value are skipped."""
        samples = samples.where(samples.is_reading)
        if not len(samples):
            return
        order = np.argsort(samples.codes, kind="stable")
        codes, starts = np.unique(samples.codes[order], return_index=True)
        for code, part in zip(codes.tolist(), np.split(order, starts[1:]), strict=True):
            name = samples.names[code]
            builder = self._builder(name)
            if builder is None:
                self.ignored_rows += len(part)
                continue
            builder.add(samples.t_ns[part], samples.values[part])
            self._keep_by_device(
                name, samples.device[part], samples.t_ns[part], samples.values[part]
            )

    def device_series(self, reading_name: str) -> dict[int, Series]:
        """Device → its readings of one of the names ``BY_DEVICE``, in the order of devices."""
        return {
            device: builder.series()
            for (name, device), builder in sorted(self._by_device.items())
            if name == reading_name
        }

    def latest(self, reading_name: str, device: int = -1) -> Reading | None:
        """The last reading of this name on one device; None if there is none."""
        return self._latest.get((reading_name, device))

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices with readings of their own, in order."""
        return tuple(sorted({device for _, device in self._latest if device >= 0}))

    def _keep_by_device(
        self, reading_name: str, devices: Numbers, t_ns: Numbers, values: npt.NDArray[Any]
    ) -> None:
        for device in np.unique(devices).tolist():
            mine = np.flatnonzero(devices == device)
            if reading_name in BY_DEVICE:
                self._add_by_device(reading_name, device, t_ns[mine], values[mine])
            last = mine[-1]
            if (reading_name, device) in self._latest or len(self._latest) < MAX_LATEST:
                self._latest[reading_name, device] = Reading(int(t_ns[last]), float(values[last]))

    def _add_by_device(
        self, reading_name: str, device: int, t_ns: npt.NDArray[np.int64], values: npt.NDArray[Any]
    ) -> None:
        key = (reading_name, device)
        if key not in self._by_device and len(self._by_device) < MAX_DEVICES * len(BY_DEVICE):
            self._by_device[key] = SeriesBuilder()
        if key in self._by_device:
            self._by_device[key].add(t_ns, values)

    def series(self) -> dict[str, Series]:
        """Reading → its series, in the order in which the readings appeared."""
        return {name: builder.series() for name, builder in self._builders.items()}

    def _builder(self, reading_name: str) -> SeriesBuilder | None:
        if reading_name not in self._builders and len(self._builders) < MAX_SERIES:
            self._builders[reading_name] = SeriesBuilder()
        return self._builders.get(reading_name)


class DriverBytes:
    """Bytes that driver calls took and have not given back, for one owner or for all.

    ``last_ns``: time of the last driver call. ``peak_ns``: time of the call that reached the
    peak.
    """

    def __init__(self, owner: str | None = None) -> None:
        self._owner = owner
        self.bytes = 0
        self.rounded_bytes = 0
        self.peak_bytes = 0
        self.is_peak_known = True
        self.calls = 0
        self.last_ns = self.peak_ns = 0

    def restart(self, held: Held) -> None:
        """Continue from the bytes held when a segment began: the events before it are deleted."""
        self.bytes = self.rounded_bytes = 0
        self.is_peak_known = False
        for owner, (size, buffers) in held.items():
            if self._owner in (None, owner):
                self.bytes += size
                self.rounded_bytes += int(round_to_granules(np.array(size // buffers))) * buffers
                self.calls += 1

    def add(self, batch: Batch, sums: Sums) -> None:
        """Follow the calls of ``batch`` in the order of the file.

        A sum only tells the change over its step, so the peak is not known after one.
        """
        rows, changes, count = own_calls(batch, sums)
        if self._owner is not None and len(rows):
            is_owned = self._is_owned(batch, rows)
            rows, changes, count = rows[is_owned], changes[is_owned], count[is_owned]
        if not len(rows):
            return
        self.is_peak_known &= not np.isin(rows, sums.rows).any()
        level = self.bytes + np.cumsum(changes)
        rounded = round_to_granules(np.abs(changes) // count) * count
        self.rounded_bytes += int((np.sign(changes) * rounded).sum())
        self.calls += int(count.sum())
        self.bytes = int(level[-1])
        self.last_ns = int(batch["t_ns"][rows[-1]])
        highest = int(level.argmax())
        if level[highest] > self.peak_bytes:
            self.peak_bytes, self.peak_ns = int(level[highest]), int(batch["t_ns"][rows[highest]])

    def _is_owned(self, batch: Batch, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        codes, names = batch.names
        if self._owner not in names:
            return np.zeros(len(rows), dtype=bool)
        return np.asarray(codes[rows] == names.index(self._owner))


def own_calls(batch: Batch, sums: Sums) -> tuple[Numbers, Numbers, Numbers]:
    """The program's own driver calls: their rows, the change in bytes and the number of calls.

    Includes sums of such calls. Driver calls of libraries, recorded by CUPTI, have a device and
    are left out.
    """
    kind, count = batch["kind"].copy(), np.ones(batch.rows, dtype=np.int64)
    kind[sums.rows], count[sums.rows] = sums.kind, np.maximum(sums.count, 1)
    is_call = (kind == Kind.DEVICE_MALLOC) | (kind == Kind.DEVICE_FREE)
    rows = np.flatnonzero(is_call & (batch["device"] < 0))
    sizes = np.clip(batch["bytes"][rows], 0, MAX_BYTES)
    return rows, np.where(kind[rows] == Kind.DEVICE_MALLOC, sizes, -sizes), count[rows]


def read_held(data: Any) -> Held:
    """Bytes that driver calls held when a segment began, from its first fact."""
    said = data.get("driver") if isinstance(data, dict) else None
    return {
        owner: (min(numbers[0], MAX_BYTES), max(min(numbers[1], MAX_BYTES), 1))
        for owner, numbers in (said.items() if isinstance(said, dict) else ())
        if _are_counts(numbers)
    }


def _are_counts(numbers: Any) -> bool:
    is_pair = isinstance(numbers, list) and len(numbers) == 2
    return is_pair and all(type(each) is int and each >= 0 for each in numbers)


def round_to_granules(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes that the driver takes: whole granules above 1 MiB; smaller ones share them."""
    whole = -(-sizes // GRANULE_BYTES) * GRANULE_BYTES
    return np.asarray(np.where(sizes > GRANULE_BYTES // 2, whole, sizes))
