"""A trace as Perfetto reads it: packets decoded by the wire format alone, then put in order.

Field numbers: protos/perfetto/trace/ of https://github.com/google/perfetto at v59.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from memscope.format.header import Header
from memscope.interop.perfetto.trace import TraceWriter
from memscope.reader.scanner import State
from tests.memscope.analysis.build import HEADER, Event, make_batch, state

BEGIN, END, INSTANT = 1, 2, 3  # the fourth is a value of a counter
COMPLETE = state()


@dataclass
class Track:
    """One track and what lies on it, in the order of time."""

    name: str
    rank: int
    unit: int | str | None = None
    slices: list[tuple[int, int, str]] = field(default_factory=list)
    instants: list[tuple[int, str]] = field(default_factory=list)
    counts: list[tuple[int, float]] = field(default_factory=list)
    arguments: list[dict[str, Any]] = field(default_factory=list)


def write_trace(
    rows: Sequence[Event],
    *,
    split: int = 40,
    header: Header = HEADER,
    state: State = COMPLETE,
    first: Header | None = None,
) -> tuple[bytes, TraceWriter]:
    writer = TraceWriter(header, state, first=first)
    parts = [writer.begin()]
    for number, start in enumerate(range(0, len(rows), split), 1):
        parts.append(writer.add(make_batch(rows[start : start + split], number)))
    return b"".join([*parts, writer.end()]), writer


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field; of a length-delimited one its bytes."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        if tag & 7 == 0:
            value, place = _varint(data, place)
        elif tag & 7 == 1:
            value, place = struct.unpack_from("<d", data, place)[0], place + 8
        else:
            assert tag & 7 == 2
            length, place = _varint(data, place)
            assert place + length <= len(data)
            value, place = data[place : place + length], place + length
        yield tag >> 3, value


def _varint(data: bytes, place: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        found |= (data[place] & 127) << shift
        place, shift = place + 1, shift + 7
        if data[place - 1] < 128:
            return found, place


def read_tracks(data: bytes) -> list[Track]:
    """The tracks of a trace, its events sorted by time as Perfetto does: stable, over all.

    Asserts that descriptors come first, and that each end closes the slice that began it.
    """
    tracks: dict[int, Track] = {}
    happened: list[tuple[int, int, dict[int, Any], dict[str, Any]]] = []
    for number, packet in fields(data):
        assert number == 1
        content = dict(fields(packet))
        assert content[10] > 0  # the sequence
        if 60 in content:
            described = dict(fields(content[60]))
            if 3 not in described:
                assert described[1] not in tracks
                tracks[described[1]] = _track(described)
        elif 11 in content:
            event = dict(fields(content[11]))
            assert event[11] in tracks
            notes = [dict(fields(note)) for key, note in fields(content[11]) if key == 4]
            arguments = {_text(note.pop(10)): next(iter(note.values())) for note in notes}
            happened.append((content[8], len(happened), event, arguments))
    _play(tracks, happened)
    return list(tracks.values())


def _track(described: dict[int, Any]) -> Track:
    unit = None
    if 8 in described:
        counter = dict(fields(described[8]))
        unit = counter[3] if 3 in counter else _text(counter[6])
    return Track(_text(described[2]), described[12], unit)


def _play(tracks: dict[int, Track], happened: list[Any]) -> None:
    opened: dict[int, list[tuple[int, int, str]]] = {}
    for t_ns, place, event, arguments in sorted(happened, key=lambda each: each[0]):
        track, stack = tracks[event[11]], opened.setdefault(event[11], [])
        if event[9] == BEGIN:
            stack.append((t_ns, place, _text(event[23])))
            track.arguments.append(arguments)
        elif event[9] == END:
            begin_ns, began_at, name = stack.pop()
            assert place == began_at + 1, "an end that closes the slice of another"
            assert not stack, "slices of one track overlap"
            track.slices.append((begin_ns, t_ns, name))
        elif event[9] == INSTANT:
            track.instants.append((t_ns, _text(event[23])))
            track.arguments.append(arguments)
        else:
            track.counts.append((t_ns, event[30] if 30 in event else event[44]))
    assert not any(opened.values())


def _text(data: bytes) -> str:
    text = data.decode()
    assert all(character.isprintable() or character == "\ufffd" for character in text)
    return text
