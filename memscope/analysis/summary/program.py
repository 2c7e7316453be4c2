"""What a program shows: whether it has a residency window, its readings, the latest sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from memscope.analysis.timeline.series import Series, joined
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import FIRST_DEVICE, Fact

WINDOW_FACTS = (Fact.POLICY, FIRST_DEVICE)  # facts of programs that keep weights in a window


@dataclass(frozen=True, slots=True)
class ReadingSeries:
    """The values of one reading over time. ``device`` is None if only one device was read."""

    reading_name: str
    device: int | None
    series: Series


@dataclass(frozen=True, slots=True)
class Program:
    """``has_window``: weights of layers are uploaded and evicted, or the program said so.

    ``series``: one for each reading and device. ``latest_bytes``: name → last value, summed over
    all devices.
    """

    has_window: bool = False
    series: tuple[ReadingSeries, ...] = ()
    latest_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def on_several(self) -> frozenset[str]:
        """Readings that were read on several devices."""
        return frozenset(each.reading_name for each in self.series if each.device is not None)


def describe_program(timeline: Timeline) -> Program:
    """Describe the program from what is recorded so far."""
    series = tuple(each for name in timeline.series for each in reading_series(timeline, name))
    return Program(has_window(timeline), series, _latest_bytes(series))


def has_window(timeline: Timeline) -> bool:
    """Whether the program keeps only some layers on the device, or will."""
    moves = any(timeline.counts.get(kind) for kind in ("upload", "evict"))
    return moves or any(name in timeline.facts for name in WINDOW_FACTS)


def reading_series(timeline: Timeline, reading_name: str) -> Iterator[ReadingSeries]:
    """A series for each device, in the order of devices.

    Values without a device count for the first one.
    """
    found: dict[int, Series] = {}
    read = timeline.readings_of(reading_name)
    first = next((device for device in read if device >= 0), -1)
    for device, readings in read.items():
        place = device if device >= 0 else first
        known = found.get(place)
        found[place] = readings.series if known is None else joined(known, readings.series)
    for device, series in found.items():
        yield ReadingSeries(reading_name, device if len(found) > 1 else None, series)


def _latest_bytes(series: tuple[ReadingSeries, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in series:
        if each.reading_name.endswith("_bytes"):
            found[each.reading_name] = found.get(each.reading_name, 0) + int(each.series.latest)
    return found
