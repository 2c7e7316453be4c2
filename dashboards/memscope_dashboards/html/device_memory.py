"""Data of the memory chart: bands at step ends, lines of readings, and the limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memscope.analysis.summary.program import ReadingSeries, reading_series
from memscope.analysis.timeline.facts import Device
from memscope.analysis.timeline.series import Floats, Series
from memscope.analysis.timeline.timeline import Timeline
from memscope_dashboards.html.chart import thin

# Step column, legend text, colour; from the bottom of the stack up
BANDS = (
    ("resident_bytes", "weights ready", "resident"),
    ("in_flight_bytes", "in flight", "flight"),
    ("idle_bytes", "idle in weight pool", "idle"),
    ("kv_bytes", "KV cache", "kv"),
)
# Reading, legend text, colour, dash
READING_LINES = (
    ("device.allocated_bytes", "allocated", "ink", "solid"),
    ("device.peak_bytes", "peak so far", "muted", "dot"),
    ("torch.allocated_bytes", "torch allocated", "resident", "solid"),
    ("torch.reserved_bytes", "torch reserved", "muted", "dash"),
    ("nvml.used_bytes", "used on the card", "kv", "dot"),
)
COLOURS = ("resident", "flight", "kv", "pass", "muted", "ink", "host", "idle")  # of devices
MAX_READING_LINES = 12
# A limit further than this above the peak would flatten everything below it.
LIMIT_IN_SIGHT = 3.0


@dataclass(frozen=True, slots=True)
class Band:
    """Bytes of one kind of memory at step ends. ``at_ns`` and ``bytes`` have shape (steps,)."""

    words: str
    colour: str
    at_ns: Floats
    bytes: Floats


@dataclass(frozen=True, slots=True)
class ReadingLine:
    """The line of one reading. ``device`` is None if the recording has only one device."""

    words: str
    colour: str
    dash: str
    series: Series
    device: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bands, lines and limit of the memory chart."""

    bands: tuple[Band, ...]
    lines: tuple[ReadingLine, ...]
    usable_bytes: int | None
    left_out: tuple[str, ...] = ()
    """Legend texts of readings that are not drawn because there are too many devices."""

    @property
    def devices(self) -> int:
        """Number of devices with lines of their own, at least 1."""
        return max(len({line.device for line in self.lines if line.device is not None}), 1)

    @property
    def peak_bytes(self) -> float:
        """The highest point of the bands and lines, in bytes."""
        stack = sum((band.bytes for band in self.bands), start=np.zeros(1))
        return max([float(stack.max()), *(line.series.peak for line in self.lines)])

    @property
    def limit_bytes(self) -> int | None:
        """The limit in bytes; None if it is unknown or too far above the peak to draw."""
        near = LIMIT_IN_SIGHT * self.peak_bytes
        return self.usable_bytes if self.usable_bytes and self.usable_bytes <= near else None

    def __bool__(self) -> bool:
        return bool(self.bands or self.lines)


def read_device_memory(timeline: Timeline, device: Device | None) -> DeviceMemory:
    """The memory of all devices in ``timeline``. The limit is that of ``device``."""
    lines: list[ReadingLine] = []
    left_out: list[str] = []
    for reading_name, words, colour, dash in READING_LINES:
        found = tuple(reading_series(timeline, reading_name))
        if lines and len(lines) + len(found) > MAX_READING_LINES:
            left_out.append(words)
        else:
            lines += [_line(each, words, colour, dash) for each in found]
    usable = device.usable_bytes if device else None
    return DeviceMemory(_bands(timeline), tuple(lines), usable, tuple(left_out))


def _line(found: ReadingSeries, words: str, colour: str, dash: str) -> ReadingLine:
    """The colour shows the reading if there is one device, else the device."""
    if found.device is None:
        return ReadingLine(words, colour, dash, found.series)
    colour = COLOURS[found.device % len(COLOURS)]
    return ReadingLine(f"{words}, device {found.device}", colour, dash, found.series, found.device)


def _bands(timeline: Timeline) -> tuple[Band, ...]:
    steps = timeline.steps
    if not len(steps):
        return ()
    at_ns = thin(steps.step, steps.end_ns).last
    bands = (
        Band(words, colour, at_ns, thin(steps.step, getattr(steps, column)).last.clip(0))
        for column, words, colour in BANDS
    )
    return tuple(band for band in bands if band.bytes.any())
