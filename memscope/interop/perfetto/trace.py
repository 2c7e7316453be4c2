"""A recording's events as a trace that ui.perfetto.dev opens.

What has a duration becomes a slice, what has none a moment, a reading a value of its counter.
Slices of one track follow one another: what would overlap goes to a further lane of the same name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from memscope.events import Kind
from memscope.interop.perfetto.encoding import MAX_NS, Encoder, Label, Track
from memscope.interop.perfetto.places import (
    BEGAN,
    COUNTERS_RANK,
    MAP_KINDS,
    QUEUED,
    RECORDING,
    Place,
    Rows,
    find_place,
    find_unit,
)
from memscope.reader.state import StateName

if TYPE_CHECKING:
    from memscope.format.header import Header
    from memscope.reader.scanner import Batch, State

MAX_LANES = 64
MAX_TRACKS = 2048
MAX_WORDS = 64  # of the command


@dataclass(slots=True)
class Lanes:
    """The tracks of one place, and where the last slice of each ends."""

    place: Place
    name: str
    tracks: list[Track] = field(default_factory=list)
    ends_ns: list[int] = field(default_factory=list)

    def stretch(self, t_ns: int, duration_ns: int) -> tuple[int, int]:
        """Begin and end of a row."""
        t_ns, duration_ns = max(min(t_ns, MAX_NS), -MAX_NS), min(duration_ns, MAX_NS)
        if self.place.time == QUEUED:
            t_ns = max(t_ns, self.ends_ns[0])
        elif self.place.time != BEGAN:
            t_ns -= duration_ns
        return t_ns, t_ns + duration_ns

    def find(self, begin_ns: int) -> int:
        """The first lane that is free from then on; one past the last where none is."""
        for lane, end_ns in enumerate(self.ends_ns):
            if end_ns <= begin_ns:
                return lane
        return len(self.ends_ns)


class TraceWriter:
    """Turns batches into packets; what it holds does not grow with them.

    ``first``: the process whose clock all traces of a run are on. ``written``: rows that the trace
    holds. ``left_out``: those that it has no place for, by kind.
    """

    def __init__(self, header: Header, state: State, *, first: Header | None = None) -> None:
        self._header, self._state, self._first = header, state, first or header
        identity = " ".join(map(str, header.recording))
        self._encoder = Encoder(identity, _start_ns(header, self._first))
        self._packets: list[bytes] = []
        self._lanes: dict[tuple[str, int], Lanes] = {}
        self._counters: dict[tuple[str, int, bool], Track] = {}
        self._tracks = 0
        self._last_ns = 0
        self.written = 0
        self.left_out: dict[str, int] = {}

    def begin(self) -> bytes:
        """The clock and the process, before any event."""
        header, encoder = self._header, self._encoder
        name = header.command[0] if header.command else "a recording of memscope"
        if header.rank is not None:
            name = f"rank {header.rank}: {name}"
        pid = header.pid
        if header.host != self._first.host:  # numbers of two machines may be the same
            name, pid = f"{name} on {header.host}", encoder.made_up_pid
        label = f"recording {self._state}"
        command = header.command[:MAX_WORDS]
        return encoder.clock(header.started_at_ns) + encoder.process(pid, name, command, label)

    def add(self, batch: Batch) -> bytes:
        """The packets of one batch."""
        rows = Rows(batch)
        kinds, times = rows["kind"], rows["t_ns"]
        for row in np.argsort(batch["t_ns"], kind="stable").tolist():
            kind, t_ns = kinds[row], times[row]
            self._last_ns = max(self._last_ns, t_ns)
            if kind == Kind.SAMPLE:
                self._add_reading(rows, row, t_ns)
            elif kind in MAP_KINDS:
                self._leave_out("of the allocator's map")
            else:
                self._add_event(rows, row, kind, t_ns)
        return self._take()

    def end(self) -> bytes:
        """A moment that says where a recording stops that has no end."""
        state = self._state
        lanes = None if state.name is StateName.COMPLETE else self._find_lanes(RECORDING, -1)
        if lanes is not None:
            lost = {"lost_rows": state.lost_rows, "lost_bytes": state.lost_bytes}
            label = Label(f"recording {state.name}", "state", {"state": str(state), **lost})
            self._packets.append(self._encoder.instant(lanes.tracks[0], self._last_ns, label))
        return self._take()

    def _take(self) -> bytes:
        packets, self._packets = self._packets, []
        return b"".join(packets)

    def _add_reading(self, rows: Rows, row: int, t_ns: int) -> None:
        size, value = rows["bytes"][row], rows["value"][row]
        is_bytes = size >= 0
        if not is_bytes and not math.isfinite(value):
            return self._leave_out("readings without a value")
        track = self._find_counter(rows.name(row) or "sample", rows["device"][row], is_bytes)
        if track is None:
            return self._leave_out(f"of tracks past the first {MAX_TRACKS:,}")
        self._packets.append(self._encoder.count(track, t_ns, size if is_bytes else value))
        self.written += 1
        return None

    def _find_counter(self, reading_name: str, device: int, is_bytes: bool) -> Track | None:
        track = self._counters.get((reading_name, device, is_bytes))
        if track is None and self._has_room():
            unit = find_unit(reading_name, is_bytes=is_bytes)
            name = _of_device(reading_name, device)
            track, packet = self._encoder.counter_track(name, COUNTERS_RANK, unit=unit)
            self._counters[reading_name, device, is_bytes] = track
            self._packets.append(packet)
        return track

    def _add_event(self, rows: Rows, row: int, kind: int, t_ns: int) -> None:
        kind_name = self._kind_name(kind)
        lanes = self._find_lanes(find_place(kind, kind_name), rows["device"][row])
        if lanes is None:
            return self._leave_out(f"of tracks past the first {MAX_TRACKS:,}")
        label, duration_ns = rows.label(row, kind, kind_name), rows["duration_ns"][row]
        if duration_ns < 0:
            self._packets.append(self._encoder.instant(lanes.tracks[0], t_ns, label))
        else:
            self._add_slice(lanes, t_ns, duration_ns, label)
        self.written += 1
        return None

    def _add_slice(self, lanes: Lanes, t_ns: int, duration_ns: int, label: Label) -> None:
        begin_ns, end_ns = lanes.stretch(t_ns, duration_ns)
        lane = lanes.find(begin_ns)
        if lane == len(lanes.tracks) and not self._add_lane(lanes):
            label = Label(
                label.name, label.category, {**label.arguments, "duration_ns": duration_ns}
            )
            self._packets.append(self._encoder.instant(lanes.tracks[0], t_ns, label))
            return
        lanes.ends_ns[lane] = end_ns
        self._packets.append(self._encoder.slice(lanes.tracks[lane], begin_ns, end_ns, label))

    def _find_lanes(self, place: Place, device: int) -> Lanes | None:
        lanes = self._lanes.get((place.words, device))
        if lanes is None:
            lanes = Lanes(place, _of_device(place.words, device))
            if not self._add_lane(lanes):
                return None
            self._lanes[place.words, device] = lanes
        return lanes

    def _add_lane(self, lanes: Lanes) -> bool:
        """Whether there was room for one."""
        if len(lanes.tracks) == MAX_LANES or not self._has_room():
            return False
        track, packet = self._encoder.track(lanes.name, lanes.place.rank, lanes.place.about)
        lanes.tracks.append(track)
        lanes.ends_ns.append(-MAX_NS)
        self._packets.append(packet)
        return True

    def _has_room(self) -> bool:
        self._tracks += 1
        return self._tracks <= MAX_TRACKS

    def _leave_out(self, what: str) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + 1

    def _kind_name(self, kind: int) -> str:
        names = self._header.kinds
        return names[kind] if 0 <= kind < len(names) else f"kind {kind}"


def _start_ns(header: Header, first: Header) -> int:
    """When a recording started: by the machine's own clock, else by the time of day."""
    if header.host == first.host:
        return header.started_monotonic_ns
    return first.started_monotonic_ns + header.started_at_ns - first.started_at_ns


def _of_device(words: str, device: int) -> str:
    return words if device < 0 else f"{words}, device {device}"
