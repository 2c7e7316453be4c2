"""Reads one file: whole messages, what is missing between them, and the file's state.

A closed file ends with a message without rows and the stream's own end marker. The marker alone is
eight bytes, which a cut inside a batch can leave at the end by chance.

The same scanner serves finished and growing files. It checks bytes and sequence numbers before it
uses any value, skips damage, finds the next whole message, and counts what was lost.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Self

import pyarrow as pa

from memscope.errors import MemscopeError
from memscope.format.batch import Batch
from memscope.format.frames import (
    END,
    HEADER_KEY,
    MARKER,
    MAX_FRAME_BYTES,
    TAG_KEY,
    Broken,
    Frame,
    Incomplete,
    check_frame,
)
from memscope.format.header import Header, check_columns, parse_header
from memscope.reader.state import State, decide_state

try:
    import fcntl
except ImportError:  # Windows reads, and cannot tell a running file from a cut one
    fcntl = None  # type: ignore[assignment]

__all__ = ["Batch", "Scanner", "State", "decide_state", "is_locked_by_writer"]

CHUNK_BYTES = 1 << 24


class Scanner:
    """Reads messages from a file's start. Each ``poll`` continues where the last one stopped."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises MemscopeError if it is no recording, FileNotFoundError if it is empty."""
        self.path = Path(path)
        self._fd = _open(self.path)
        self._offset = 0
        self._rows = self._lost_rows = self._lost_bytes = 0
        self._batches = self._head_rows = 0
        self._is_locked = self._is_closed = self._has_end = False
        try:
            self.schema, self.header = self._read_schema()
        except BaseException:
            self.close()
            raise
        self._sequence = self.header.segment.first_sequence - 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def is_replaced(self) -> bool:
        """Whether another file is at the path now, or this one was cut shorter."""
        try:
            now, mine = os.stat(self.path), os.fstat(self._fd)
        except OSError:
            return True
        return (now.st_ino, now.st_dev) != (mine.st_ino, mine.st_dev) or now.st_size < self._offset

    @property
    def next_row(self) -> int:
        """Number of events up to here, in earlier segments too, read or known to be lost."""
        first_row = self.header.segment.first_row
        return first_row + self._rows - self._head_rows + self._lost_rows

    def is_head(self, frame: Frame) -> bool:
        """Whether ``frame`` only repeats facts of earlier segments."""
        segment = self.header.segment
        return segment.number > 1 and frame.sequence == segment.first_sequence

    def poll(self, *, max_bytes: int = CHUNK_BYTES) -> list[Frame]:
        """Frames that became whole since the last poll. Reads about ``max_bytes`` at most."""
        self._is_locked = is_locked_by_writer(self._fd)
        frames: list[Frame] = []
        data = _read_at(self._fd, self._offset, max_bytes)
        position = 0
        while position < len(data):
            if self._is_closed and data[position:] == END:
                self._has_end = True
                position += len(END)
                break
            frame = self._frame_at(data, position)
            if frame is not None:
                position += frame.length
                if not self._is_closed:
                    frames.append(frame)
            elif (found := self._skip_damage(data, position)) is not None:
                position = found
            elif position == 0 and len(data) == max_bytes < MAX_FRAME_BYTES:
                return self.poll(max_bytes=max_bytes * 4)
            else:
                break
        self._offset += position
        return frames

    def scan(self) -> list[Frame]:
        """All whole frames up to the present end of the file."""
        frames: list[Frame] = []
        before = -1
        while before < self._offset:
            before = self._offset
            frames += self.poll()
        return frames

    def read(self, frame: Frame) -> Batch:
        """The events of ``frame``. Raises MemscopeError if it holds no batch of events."""
        data = _read_at(self._fd, frame.offset, frame.length)
        try:
            record = pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)
            record.validate(full=True)
        except (pa.ArrowException, MemoryError, OverflowError) as error:
            raise MemscopeError(
                f"{self.path} holds events that cannot be read ({_one_line(error)}).",
                "Record again; the file was not made by this program.",
            ) from None
        return Batch(record, frame.sequence, is_thinned=self.header.segment.is_thinned)

    def state(self) -> State:
        """State as of the last poll."""
        tail = 0 if self._is_locked or self._has_end else self._unreadable_tail()
        name = decide_state(
            is_locked=self._is_locked and not self._has_end,
            has_end=self._has_end,
            has_damage=bool(self._lost_rows or self._lost_bytes or tail),
        )
        return State(name, self._batches, self._rows, self._lost_rows, self._lost_bytes + tail)

    def _frame_at(self, data: bytes, position: int) -> Frame | None:
        """The next frame, counted; None if no whole frame in order is at ``position``."""
        try:
            frame = check_frame(data, position, base=self._offset)
        except (Incomplete, Broken):
            return None
        if frame.sequence <= self._sequence:
            return None
        self._lost_rows += max(frame.first_row - self.next_row, 0)
        self._sequence = frame.sequence
        self._rows += frame.rows
        self._head_rows += frame.rows if self.is_head(frame) else 0
        self._is_closed = frame.rows == 0
        self._batches += not self._is_closed
        return frame

    def _skip_damage(self, data: bytes, position: int) -> int | None:
        """Where the next whole message of ``data`` starts; None if there is none yet."""
        start = position
        while (position := data.find(MARKER, position + 1)) >= 0:
            if self._is_next(data, position):
                self._lost_bytes += position - start
                return position
        return None

    def _is_next(self, data: bytes, position: int) -> bool:
        try:
            return check_frame(data, position).sequence > self._sequence
        except (Incomplete, Broken):
            return False

    def _unreadable_tail(self) -> int:
        """Bytes after the last whole message that cannot be the start of another."""
        rest = os.fstat(self._fd).st_size - self._offset
        try:
            check_frame(_read_at(self._fd, self._offset, min(rest, CHUNK_BYTES)), 0)
        except Broken:
            return rest
        except Incomplete:
            pass
        return 0

    def _read_schema(self) -> tuple[pa.Schema, Header]:
        data = _read_at(self._fd, 0, 1 << 20)
        if not data:
            raise FileNotFoundError(self.path)
        try:
            frame = check_frame(data, 0)
            schema = pa.ipc.read_schema(pa.py_buffer(data[: frame.length]))
            header = parse_header(json.loads(schema.metadata[HEADER_KEY]))
            check_columns(schema)
        except MemscopeError as error:
            raise MemscopeError(f"{self.path} {error.problem}", error.next_step) from None
        except Exception as error:
            raise self._refusal(data, isinstance(error, Incomplete)) from None
        self._offset = frame.length
        return schema, header

    def _refusal(self, data: bytes, is_incomplete: bool) -> MemscopeError:
        if HEADER_KEY not in data and TAG_KEY not in data and b"memscope-frame" not in data:
            if is_incomplete and MARKER.startswith(data[:4]):
                return _cut_header(self.path)
            return MemscopeError(
                f"{self.path} is not a memscope recording.",
                "Name a file that memscope recorded; `memscope explain` reads logs and snapshots.",
            )
        if is_incomplete:
            return _cut_header(self.path)
        return MemscopeError(
            f"{self.path} is damaged in its header, so none of it can be read.",
            "Take another copy of the file, or record again.",
        )


def is_locked_by_writer(fd: int) -> bool:
    """Whether a recorder still writes the file. Always False on systems without flock."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _open(path: Path) -> int:
    try:
        if path.is_dir():
            raise MemscopeError(f"{path} is a folder.", "Name the recording inside it.")
        if path.exists() and not path.is_file():  # to open a pipe would wait for its writer
            raise MemscopeError(
                f"{path} is not a regular file.", "Name one that `memscope` recorded."
            )
        return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise MemscopeError(
            f"{path} does not exist.", "Check the path; `memscope run` makes one."
        ) from None
    except OSError as error:
        raise MemscopeError(
            f"{path} cannot be read ({error.strerror}).", "Check its permissions."
        ) from None


def _cut_header(path: Path) -> MemscopeError:
    return MemscopeError(
        f"{path} is cut off inside its header and holds no events.", "Record again."
    )


def _read_at(fd: int, offset: int, count: int) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, count)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
