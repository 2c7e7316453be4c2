"""The file that a recorder writes, and its older segments, within a limit of bytes.

PATH is always the segment being written. When it is full it gets a name of its own, and the next
one takes its place in one step. Each segment begins with the last value of every fact, so that it
can be opened alone and the program may be killed at any moment. Everything here runs on the
writer's thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memscope.events import Kind
from memscope.facts import Fact
from memscope.format.header import Segment, new_header
from memscope.format.segment_names import free_names, next_name
from memscope.recorder.output_file import OutputFile
from memscope.recorder.retention import MARK, OOM, REMOVE, OldSegment, Retention
from memscope.recorder.rows import Row, encode_rows, make_row, sound_rows
from memscope.recorder.segment_encoder import SegmentEncoder

if TYPE_CHECKING:
    import pyarrow as pa

    from memscope.recorder.step_sums import LastMoves
    from memscope.recorder.thinning import Thinner


MAX_FACTS = 4096
MAX_REASON_CHARS = 200  # the error quotes the program's own value
SLICE_CPU_SECONDS = 0.02  # of every tenth of a second, while a segment is thinned,
SLICE_SHARE = 0.5  # or so much of what this thread took for other work since,
SLICE_SECONDS = 0.25  # and at most so long, where the program leaves it little of Python's lock


@dataclass(frozen=True, slots=True)
class Removed:
    """What was deleted. ``unthinned_rows``: events of segments that were never downsampled."""

    segments: int = 0
    rows: int = 0
    unthinned_rows: int = 0


class Segments:
    """Writes rows at ``path``: the latest up to ``limit_bytes``, or all without a limit."""

    def __init__(self, path: Path, limit_bytes: int | None, start_ns: int) -> None:
        """Raises OSError if the file or its header cannot be written."""
        self.path = path
        self.removed = Removed()
        self._retention = None if limit_bytes is None else Retention(limit_bytes)
        self._header = new_header()
        self._start_ns = start_ns
        self._refused_rows = 0
        self._facts: dict[str, Row] = {}
        self._held: dict[str, list[int]] = {}
        self._pin: str | None = None
        self._old: list[OldSegment] = []
        self._thinner: Thinner | None = None
        self._moves: LastMoves | None = None
        self._tidied = 0.0
        self._encoder = SegmentEncoder(self._header, Segment())
        self._file = _begin(path, self._encoder.begin())

    @property
    def is_ours(self) -> bool:
        """Whether the descriptor is still that of the file."""
        return self._file.is_ours

    def write(self, rows: list[Row], *, rest_seconds: float = 0.0) -> None:
        """Write one batch. ``rest_seconds``: see ``encode_rows``. Raises OSError."""
        schema = self._encoder.schema
        try:
            batch = encode_rows(rows, self._start_ns, schema, rest_seconds=rest_seconds)
        except Exception as error:
            rows = self._without_odd(rows, error)
            batch = encode_rows(rows, self._start_ns, schema)
        data = self._encoder.encode(batch)
        if self._retention is not None:
            self._make_room(len(data), self._retention)
        try:
            self._file.write(data)
        except OSError:
            self._encoder.uncount(batch)
            raise
        self._note(rows, batch)
        if (
            self._retention is not None
            and self._file.size + len(data) > self._retention.segment_bytes
        ):
            self._roll(rows[-1][0] - self._start_ns + 1, self._retention)

    def _without_odd(self, rows: list[Row], error: Exception) -> list[Row]:
        """The rows that can be encoded, and a fact with the number of others."""
        sound = sound_rows(rows, self._encoder.schema)
        self._refused_rows += len(rows) - len(sound)
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_REASON_CHARS]
        fact = {"rows": self._refused_rows, "reason": reason}
        return [*sound, make_row(Kind.FACT, Fact.REFUSED, fact)]

    def end(self) -> None:
        """Write the end marker. Raises OSError."""
        self.stop_thinning()
        self._file.write(self._encoder.end())

    def give_up(self, reason: str) -> None:
        """Write a fact that says why nothing follows. Raises OSError."""
        self.stop_thinning()
        self._file.cut_back()
        row = make_row(Kind.FACT, Fact.STOPPED, {"reason": reason})
        batch = encode_rows([row], self._start_ns, self._encoder.schema)
        self._file.write(self._encoder.encode(batch))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def tidy(self, is_wanted: Callable[[], bool] = lambda: False) -> None:
        """Downsample or delete old segments, for a moment or until ``is_wanted``. Never raises."""
        if self._retention is None:
            return
        if self._thinner is None:
            self._choose(self._retention)
        else:
            self._go_on(self._thinner, is_wanted)

    def stop_thinning(self) -> None:
        """Stop downsampling, and keep the segment as it is."""
        if self._thinner is not None:
            self._thinner.abandon()
            self._thinner = None

    # -- facts and pins ------------------------------------------------------------------------

    def _note(self, rows: Sequence[Row], batch: pa.RecordBatch) -> None:
        """Keep facts for later segments, and pins for this one."""
        kinds = batch.column("kind").to_numpy()
        for row in np.flatnonzero(kinds == Kind.FACT).tolist():
            key = rows[row][4]
            if key in self._facts or len(self._facts) < MAX_FACTS:
                self._facts[key] = rows[row]
        is_call = (kinds == Kind.DEVICE_MALLOC) | (kinds == Kind.DEVICE_FREE)
        for row in np.flatnonzero(is_call).tolist():
            self._follow_call(rows[row])
        for row in np.flatnonzero((kinds == Kind.OOM) | (kinds == Kind.MARK)).tolist():
            self._pin = _stronger(self._pin, rows[row])
        if ((kinds == Kind.SEGMENT) | (kinds == Kind.BLOCK)).any():
            self._pin = OOM  # the allocator's map goes with the error that it was taken at

    def _follow_call(self, row: Row) -> None:
        """Keep track of what the program's own driver calls hold, by owner."""
        kind, name, size, device = row[1], str(row[4]), row[5] or 0, row[10]
        if device >= 0 or (name not in self._held and len(self._held) >= MAX_FACTS):
            return
        held = self._held.setdefault(name, [0, 0])
        sign = 1 if kind == Kind.DEVICE_MALLOC else -1
        held[0] += sign * size
        held[1] += sign

    # -- from one segment to the next ----------------------------------------------------------

    def _roll(self, begins_ns: int, retention: Retention) -> None:
        full, file = self._encoder, self._file
        segment = Segment(
            full.segment.number + 1, full.next_sequence, full.next_row, max(begins_ns, 0)
        )
        encoder = SegmentEncoder(self._header, segment)
        facts = [make_row(Kind.FACT, Fact.SEGMENT, self._head(segment)), *self._facts.values()]
        head = encode_rows(facts, self._start_ns, encoder.schema)
        opening = encoder.begin() + encoder.encode(head)
        encoder.uncount(head)
        self._make_room(len(opening), retention)
        next_name(self.path).unlink(missing_ok=True)  # of a program that was killed
        fresh = _begin(next_name(self.path), opening)
        unended = file.size
        try:
            file.write(full.end())
            kept = self._keep(file, full.segment.number)
            os.replace(fresh.path, self.path)
        except BaseException:
            fresh.discard()
            file.size = unended  # so that the reason can follow
            raise
        fresh.path = self.path
        self._encoder, self._file = encoder, fresh
        file.close()
        old = OldSegment(full.segment.number, kept, file.size, full.rows, self._pin)
        self._old.append(old)
        self._pin = None
        while (unpinned := retention.unpin(self._old)) is not None:
            self._put(unpinned, replace(unpinned, pin=None))

    def _head(self, segment: Segment) -> dict[str, object]:
        return {
            "number": segment.number,
            "first_row": segment.first_row,
            "begins_ns": segment.begins_ns,
            "driver": {name: list(held) for name, held in self._held.items()},
        }

    def _keep(self, file: OutputFile, number: int) -> Path:
        """Give the full segment its own name. Raises OSError if another file took its place."""
        if not file.is_at_path:
            raise OSError(errno.ENOENT, "it was moved, removed or replaced meanwhile")
        for name in free_names(self.path, number):
            try:
                os.link(self.path, name)  # so that there is a file at PATH all the time
            except FileExistsError:
                continue
            except OSError:
                if name.exists():
                    continue
                os.rename(self.path, name)  # a file system without hard links
            return name
        raise AssertionError("unreachable")

    # -- old segments --------------------------------------------------------------------------

    def _choose(self, retention: Retention) -> None:
        chosen = retention.choose(self._old)
        if chosen is None:
            return
        action, segment = chosen
        if action == REMOVE:
            self._remove(segment)
            return
        from memscope.recorder.step_sums import LastMoves
        from memscope.recorder.thinning import Thinner

        self._moves = self._moves or LastMoves()
        try:
            self._thinner = Thinner(segment.path, segment.rows, self._moves)
            self._tidied = time.thread_time()
        except Exception:  # it is gone, or the disk is full
            self._remove(segment)

    def _go_on(self, thinner: Thinner, is_wanted: Callable[[], bool]) -> None:
        segment = next(each for each in self._old if each.path == thinner.source)
        now = time.thread_time()
        cpu = now + max(SLICE_CPU_SECONDS, SLICE_SHARE * (now - self._tidied))
        clock = time.monotonic() + SLICE_SECONDS
        try:
            is_done = thinner.advance(
                lambda: time.thread_time() >= cpu or time.monotonic() >= clock or is_wanted()
            )
        except Exception:  # hardly smaller, or the disk is full, or it is damaged
            self._remove(segment)
            return
        finally:
            self._tidied = time.thread_time()
        if is_done:
            self._thinner = None
            self._put(segment, replace(segment, bytes=thinner.bytes, is_thinned=True))

    def _make_room(self, needed: int, retention: Retention) -> None:
        """Delete segments that there is no time to downsample, so that the total never exceeds the
        limit.
        """
        while self._old and self._total() + needed > retention.limit_bytes:
            first = retention.first_to_go(self._old)
            assert first is not None
            self._remove(first)

    def _total(self) -> int:
        thinning = self._thinner.bytes if self._thinner is not None else 0
        return sum(each.bytes for each in self._old) + self._file.size + thinning

    def _remove(self, segment: OldSegment) -> None:
        if self._thinner is not None and self._thinner.source == segment.path:
            self.stop_thinning()
        with contextlib.suppress(OSError):
            segment.path.unlink()
        self._old.remove(segment)
        unthinned = 0 if segment.is_thinned else segment.rows
        removed = self.removed
        self.removed = Removed(
            removed.segments + 1,
            removed.rows + segment.rows,
            removed.unthinned_rows + unthinned,
        )

    def _put(self, segment: OldSegment, changed: OldSegment) -> None:
        self._old[self._old.index(segment)] = changed


def _begin(path: Path, opening: bytes) -> OutputFile:
    file = OutputFile(path)
    try:
        file.write(opening)
    except BaseException:
        file.discard()
        raise
    return file


def _stronger(pin: str | None, row: Row) -> str | None:
    """The pin of an out-of-memory error replaces that of a mark.

    Errors of single requests are expected and pin nothing.
    """
    if row[1] == Kind.MARK:
        return pin or MARK
    is_request = isinstance(row[8], dict) and row[8].get("scope") == "request"
    return pin if is_request else OOM
