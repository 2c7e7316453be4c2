"""What a recording says about itself before its first event."""

from __future__ import annotations

import os
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from memscope.errors import MemscopeError
from memscope.events import COLUMNS, KINDS

FORMAT = (1, 0)
COMMAND_CHARS = 1 << 15


@dataclass(frozen=True, slots=True)
class Segment:
    """Which part of a recording a file is. A recording of one segment is the first.

    ``first_row``: number of events in earlier parts. ``begins_ns``: time since the recording began.
    ``rows``: number of events before it was downsampled to sums; 0 if it never was.
    """

    number: int = 1
    first_sequence: int = 1
    first_row: int = 0
    begins_ns: int = 0
    rows: int = 0

    @property
    def is_thinned(self) -> bool:
        """Whether most of its events are sums per step and kind."""
        return self.rows > 0


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says about itself: who wrote it, when, and the names of its kinds."""

    format: tuple[int, int]
    kinds: tuple[str, ...]
    run_id: str
    host: str
    pid: int
    rank: int | None
    started_at_ns: int
    started_monotonic_ns: int
    command: tuple[str, ...]
    segment: Segment = Segment()

    @property
    def recording(self) -> tuple[str, str, int, int]:
        """An id that all segments of one recording share, and no other file."""
        return self.run_id, self.host, self.pid, self.started_at_ns


def new_header() -> dict[str, Any]:
    """The header of a file that begins now."""
    return {
        "format": list(FORMAT),
        "kinds": list(KINDS),
        "run_id": os.environ.get("MEMSCOPE_RUN_ID") or uuid.uuid4().hex,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "rank": int(rank) if (rank := os.environ.get("RANK", "")).isdecimal() else None,
        "started_at_ns": time.time_ns(),
        "started_monotonic_ns": time.monotonic_ns(),
        "command": _command(),
    }


def with_segment(header: Mapping[str, Any], segment: Segment) -> dict[str, Any]:
    """The header of another segment of the same recording."""
    return {**header, "segment": asdict(segment)}


def _command() -> list[str]:
    """The command line of this process.

    At Python's start, ``-m`` or ``-c`` takes the place of the program's name.
    """
    words = sys.orig_argv if sys.argv[:1] in (["-m"], ["-c"]) else sys.argv
    left, command = COMMAND_CHARS, []
    for word in words:
        command.append(word[:left])
        left -= len(word)
        if left <= 0:  # a header must stay within what a reader takes for one
            return [*command, "…"]
    return command


def parse_header(fields: Mapping[str, Any]) -> Header:
    """The header from its JSON form. Raises MemscopeError if this version cannot read the file."""
    major, minor = fields["format"]
    if major != FORMAT[0]:
        raise MemscopeError(
            f"has format {major}.{minor}; this memscope reads {FORMAT[0]}.x.",
            "Upgrade with `pip install -U memscope-torch`.",
        )
    kinds = tuple(map(str, fields["kinds"]))
    if any(name != known for name, known in zip(kinds, KINDS, strict=False)):
        raise MemscopeError("names its kinds in another order.", "Record again.")
    started_at_ns = int(fields["started_at_ns"])
    if not 0 <= started_at_ns < 1 << 63:
        raise ValueError("no time on a calendar")
    return Header(
        format=(int(major), int(minor)),
        kinds=kinds,
        run_id=str(fields["run_id"]),
        host=str(fields["host"]),
        pid=int(fields["pid"]),
        rank=None if fields["rank"] is None else int(fields["rank"]),
        started_at_ns=started_at_ns,
        started_monotonic_ns=int(fields["started_monotonic_ns"]),
        command=tuple(map(str, fields["command"])),
        segment=_parse_segment(fields.get("segment", {})),
    )


def _parse_segment(fields: Mapping[str, Any]) -> Segment:
    known = {name: int(fields[name]) for name in Segment.__slots__ if name in fields}
    if not all(0 <= number < 1 << 62 for number in known.values()):
        raise ValueError("no segment of a recording")
    return Segment(**known)


def check_columns(schema: pa.Schema) -> None:
    """Raises MemscopeError if a column that this version reads is missing."""
    for column in COLUMNS:
        if schema.field(column.name).type != getattr(pa, column.type)():
            raise MemscopeError(f"has no column {column.name} of {column.type}.", "Record again.")
