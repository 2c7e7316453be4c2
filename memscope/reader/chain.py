"""Reads the segments of a recording one after the other, like one file.

Segments that the recorder deleted because they were old are not damage. Events that are missing
between two segments are. A followed chain goes on with the segments that the recorder writes next.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import pyarrow as pa

from memscope.errors import MemscopeError
from memscope.format.batch import Batch
from memscope.format.frames import Frame
from memscope.format.header import Header, Segment
from memscope.format.segment_names import next_name, possible_segments, thin_name
from memscope.reader.scanner import CHUNK_BYTES, Scanner
from memscope.reader.state import State, StateName

ATTEMPTS = 5  # at opening a chain whose writer begins its next segment meanwhile


@dataclass(frozen=True, slots=True)
class Piece:
    """One batch and the file it is in."""

    scanner: Scanner
    frame: Frame


class Chain:
    """Reads all segments of the recording at ``path``. Each ``poll`` continues where the last one
    stopped.

    ``is_followed``: segments that are read to their end are closed, so a piece can only be read
    until the next ``poll``.
    """

    def __init__(self, path: str | os.PathLike[str], *, is_followed: bool = False) -> None:
        """Raises what Scanner raises."""
        self.path = Path(path)
        self._is_followed = is_followed
        self._scanners, self._unreadable = _open_all(self.path)
        self._index = 0
        self._passed = State(StateName.COMPLETE, 0, 0, 0, sum(self._unreadable.values()))
        self._is_head_repeated = False
        self._enter(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all files."""
        for scanner in self._scanners:
            scanner.close()

    @property
    def header(self) -> Header:
        """Header of the newest segment."""
        return self._scanners[-1].header

    @property
    def schema(self) -> pa.Schema:
        """Schema of the newest segment."""
        return self._scanners[-1].schema

    @property
    def is_replaced(self) -> bool:
        """Whether the path holds another recording or none, or this one was cut shorter."""
        last = self._scanners[-1]
        if not last.is_replaced:
            return False
        try:
            with Scanner(self.path) as now:
                return not _is_later(now.header, last.header)
        except (MemscopeError, OSError):
            return True

    def poll(self, *, max_bytes: int = CHUNK_BYTES) -> list[Piece]:
        """Batches that became whole since the last poll. Reads about ``max_bytes`` at most."""
        while True:
            scanner = self._scanners[self._index]
            is_last = self._index == len(self._scanners) - 1
            is_over = is_last and self._is_followed and scanner.is_replaced  # before its last look
            frames = scanner.poll(max_bytes=max_bytes)
            pieces = [Piece(scanner, frame) for frame in frames if not self._skip(scanner, frame)]
            if pieces:
                return pieces
            if not frames and (is_last and not (is_over and self._find_later())):
                return []
            if not frames:
                self._advance()

    def scan(self) -> list[Piece]:
        """All whole batches up to the present end."""
        pieces: list[Piece] = []
        while found := self.poll():
            pieces += found
        return pieces

    def read(self, piece: Piece) -> Batch:
        """The events of ``piece``. Raises MemscopeError if it holds no batch of events."""
        return piece.scanner.read(piece.frame)

    def state(self) -> State:
        """State of all segments as of the last poll."""
        return _add(self._passed, self._scanners[self._index].state())

    def _enter(self, before: Scanner | None) -> None:
        """Count what is missing between segment ``before`` and the present one."""
        scanner, passed = self._scanners[self._index], self._passed
        segment = scanner.header.segment
        previous = before.header.segment if before is not None else Segment(number=0)
        ended = 0 if before is None else before.next_row
        if previous.is_thinned:
            ended = previous.first_row + previous.rows
        missing = max(segment.first_row - ended, 0)
        self._is_head_repeated = is_next = segment.number == previous.number + 1
        is_whole = is_next and not previous.is_thinned
        is_damage = is_next or any(
            previous.number < number < segment.number for number in self._unreadable
        )
        self._passed = replace(
            passed,
            lost_rows=passed.lost_rows + missing * is_damage,
            removed_rows=passed.removed_rows + missing * (not is_damage),
            thinned_rows=passed.thinned_rows + segment.rows,
            whole_from_ns=passed.whole_from_ns if is_whole else segment.begins_ns,
        )

    def _skip(self, scanner: Scanner, frame: Frame) -> bool:
        """Whether ``frame`` only repeats facts of earlier segments, and is not counted."""
        if not (self._is_head_repeated and scanner.is_head(frame)):
            return False
        passed = self._passed
        self._passed = replace(passed, batches=passed.batches - 1, rows=passed.rows - frame.rows)
        return True

    def _advance(self) -> None:
        """Go on to the next segment."""
        before = self._scanners[self._index]
        self._passed = _add(self._passed, before.state())
        if self._is_followed:
            before.close()
            del self._scanners[self._index]
        else:
            self._index += 1
        self._enter(before)

    def _find_later(self) -> bool:
        """Open the segments that began after the last one. Returns whether there are any."""
        last = self._scanners[-1].header
        try:
            later, unreadable = _open_all(self.path, after=last)
        except (MemscopeError, OSError):
            return False
        self._scanners += later
        self._unreadable |= unreadable
        lost_bytes = self._passed.lost_bytes + sum(unreadable.values())
        self._passed = replace(self._passed, lost_bytes=lost_bytes)
        return bool(later)


def remove_recording(path: Path) -> None:
    """Delete the file at ``path``, and the older segments of a recording. Raises OSError."""
    try:
        scanners, _ = _open_all(path)
    except (MemscopeError, FileNotFoundError):
        scanners = []
    for scanner in scanners:
        scanner.close()
        scanner.path.unlink(missing_ok=True)
        thin_name(scanner.path).unlink(missing_ok=True)
    next_name(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _open_all(path: Path, after: Header | None = None) -> tuple[list[Scanner], dict[int, int]]:
    """All segments, or those after ``after``, and the bytes of unreadable ones by number."""
    for attempt in range(ATTEMPTS):
        last = Scanner(path)
        if after is not None and not _is_later(last.header, after):
            last.close()
            return [], {}
        least = after.segment.number if after is not None else 0
        older, unreadable = _open_older(path, last.header, least)
        if attempt == ATTEMPTS - 1 or not last.is_replaced:
            break
        for scanner in (*older, last):
            scanner.close()
    return [*older, last], unreadable


def _open_older(path: Path, header: Header, least: int) -> tuple[list[Scanner], dict[int, int]]:
    """Segments from number ``least`` up to that of ``header``, in order."""
    found: dict[int, Scanner] = {}
    unreadable: dict[int, int] = {}
    if header.segment.number <= least + 1:
        return [], {}
    for name, number in possible_segments(path).items():
        if not least < number < header.segment.number:
            continue
        try:
            scanner = Scanner(name)
        except (MemscopeError, OSError):
            with contextlib.suppress(OSError):
                unreadable[number] = name.stat().st_size
            continue
        number = scanner.header.segment.number
        if number > least and number not in found and _is_later(header, scanner.header):
            found[number] = scanner
        else:
            scanner.close()
    lost = {number: size for number, size in unreadable.items() if number not in found}
    return [found[number] for number in sorted(found)], lost


def _is_later(header: Header, than: Header) -> bool:
    """Whether it is a later segment of the same recording."""
    return header.recording == than.recording and header.segment.number > than.segment.number


def _add(passed: State, now: State) -> State:
    """The state of earlier segments and the present one together."""
    is_damaged = passed.lost_rows or passed.lost_bytes
    return replace(
        passed,
        name=StateName.DAMAGED if is_damaged else now.name,
        batches=passed.batches + now.batches,
        rows=passed.rows + now.rows,
        lost_rows=passed.lost_rows + now.lost_rows,
        lost_bytes=passed.lost_bytes + now.lost_bytes,
    )
