"""Perfetto's trace format: tracks, slices, moments and counters as protocol buffers.

A trace is one packet after another. Fields and their numbers are those of
https://github.com/google/perfetto, protos/perfetto/trace/trace_packet.proto and
protos/perfetto/trace/track_event/*.proto, at v59.1.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from memscope.text import clean

Value = int | float | str

NAME_CHARS = 200
TEXT_CHARS = 4096
BYTES_UNIT, COUNT_UNIT = 3, 2  # CounterDescriptor.Unit
MAX_NS = 1 << 62

_VARINT, _FIXED_64, _LENGTH = 0, 1, 2  # wire types
_REALTIME, _BOOTTIME = 1, 6  # the second is a trace's clock unless it says otherwise
_EXPLICIT_ORDER = 3  # TrackDescriptor.ChildTracksOrdering
_U64 = (1 << 64) - 1
_ONE_BYTE = [bytes([number]) for number in range(128)]


@dataclass(frozen=True, slots=True)
class Track:
    """Where events go. ``prefix``: the fields of a TrackEvent that all of them share."""

    uuid: int
    prefix: bytes


@dataclass(frozen=True, slots=True)
class Label:
    """What an event is called, which kind it is of, and what else is known of it."""

    name: str
    category: str
    arguments: Mapping[str, Value]


class Encoder:
    """Packets of one recording; nothing but what is given to it comes into them.

    ``identity``: what sets this recording apart, so that traces can be put one behind another.
    Times are in ns, and ``start_ns`` is added to each.
    """

    def __init__(self, identity: str, start_ns: int) -> None:
        digest = hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=8).digest()
        self._first_uuid = int.from_bytes(digest) & ~0xFFFFF | 1
        self._tracks = 0
        self._start_ns = min(max(start_ns, 0), MAX_NS)
        # Every packet names the sequence that it belongs to.
        self._sequence = _number(10, (self._first_uuid >> 20) % 0xFFFFFFFE + 1)

    def clock(self, wall_ns: int) -> bytes:
        """What time of day it was at 0 ns."""
        clocks = ((_BOOTTIME, self._start_ns), (_REALTIME, wall_ns))
        readings = [_message(1, _number(1, clock), _number(2, t_ns)) for clock, t_ns in clocks]
        return self._packet(_message(6, *readings))

    @property
    def made_up_pid(self) -> int:
        """A number for a process whose own may be another's, too."""
        return (self._first_uuid >> 20) % (1 << 30) | 1 << 30

    def process(self, pid: int, name: str, command: Iterable[str], label: str) -> bytes:
        """The process, under which all tracks lie."""
        described = [_number(1, pid & 0x7FFFFFFF), _text(6, name)]
        described += [_text(2, word) for word in command]
        described.append(_text(8, label, TEXT_CHARS))
        order = _number(11, _EXPLICIT_ORDER)
        return self._packet(
            _message(60, _number(1, self._first_uuid), _message(3, *described), order)
        )

    def track(self, name: str, rank: int, about: str = "") -> tuple[Track, bytes]:
        """A track of slices and moments; ``rank``: its place among all."""
        uuid, packet = self._describe(name, rank, _text(14, about, TEXT_CHARS) if about else b"")
        return Track(uuid, _number(11, uuid)), packet

    def counter_track(self, name: str, rank: int, *, unit: int | str) -> tuple[Track, bytes]:
        """A track of values. ``unit``: BYTES_UNIT, COUNT_UNIT or a name."""
        described = _text(6, unit) if isinstance(unit, str) else _number(3, unit)
        uuid, packet = self._describe(name, rank, _message(8, described))
        return Track(uuid, _number(11, uuid) + _COUNTED), packet

    def slice(self, track: Track, begin_ns: int, end_ns: int, label: Label) -> bytes:
        """A stretch of time. Those of one track must lie one behind another."""
        return self._event(track, begin_ns, _BEGUN, _label(label)) + self._event(
            track, end_ns, _ENDED
        )

    def instant(self, track: Track, t_ns: int, label: Label) -> bytes:
        """A moment."""
        return self._event(track, t_ns, _HAPPENED, _label(label))

    def count(self, track: Track, t_ns: int, value: float) -> bytes:
        """A value of a counter from this moment on."""
        is_whole = isinstance(value, int)
        return self._event(track, t_ns, _number(30, int(value)) if is_whole else _double(44, value))

    def _describe(self, name: str, rank: int, extra: bytes) -> tuple[int, bytes]:
        self._tracks += 1
        uuid = self._first_uuid + self._tracks
        parent = _number(5, self._first_uuid)
        place = _number(12, rank)
        return uuid, self._packet(
            _message(60, _number(1, uuid), parent, _text(2, name), place, extra)
        )

    def _event(self, track: Track, t_ns: int, *fields: bytes) -> bytes:
        moment = min(max(self._start_ns + t_ns, 0), MAX_NS)
        return self._packet(_number(8, moment), _message(11, track.prefix, *fields))

    def _packet(self, *fields: bytes) -> bytes:
        return _message(1, *fields, self._sequence)


def _label(label: Label) -> bytes:
    return b"".join(
        [
            _short_text(22, label.category[:NAME_CHARS]),
            _text(23, label.name),
            *[_argument(name, value) for name, value in label.arguments.items()],
        ]
    )


def _argument(name: str, value: Value) -> bytes:
    is_long = isinstance(value, str) and len(value) > NAME_CHARS
    return _annotation(name, value) if is_long else _short_annotation(name, value)


def _annotation(name: str, value: Value) -> bytes:
    """A DebugAnnotation."""
    if isinstance(value, str):
        held = _text(6, value, TEXT_CHARS)
    elif isinstance(value, float):
        held = _double(5, value)
    else:
        held = _number(4, value)
    return _message(4, _text(10, name), held)


def _text(field: int, text: str, limit: int = NAME_CHARS) -> bytes:
    return (
        _short_text(field, text) if len(text) <= NAME_CHARS else _bytes(field, clean(text, limit))
    )


@lru_cache(1 << 12)  # most texts and arguments come again and again
def _short_text(field: int, text: str) -> bytes:
    return _bytes(field, clean(text))


_short_annotation = lru_cache(1 << 14, typed=True)(_annotation)


def _bytes(field: int, text: str) -> bytes:
    encoded = text.encode("utf-8", "replace")
    return _varint(field << 3 | _LENGTH) + _varint(len(encoded)) + encoded


def _varint(number: int) -> bytes:
    if 0 <= number < 128:
        return _ONE_BYTE[number]
    number &= _U64
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | _FIXED_64) + struct.pack("<d", value)


def _message(field: int, *fields: bytes) -> bytes:
    content = b"".join(fields)
    return _varint(field << 3 | _LENGTH) + _varint(len(content)) + content


_BEGUN, _ENDED, _HAPPENED, _COUNTED = (_number(9, type) for type in (1, 2, 3, 4))  # of TrackEvent
