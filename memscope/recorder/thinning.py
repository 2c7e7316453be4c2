"""Downsamples one segment, a slice at a time: read, sum, write a file beside it, replace it.

No descriptor is kept open between slices: the program may fork, or close all descriptors.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from memscope.format.arrow import decode_batch, pa
from memscope.format.frames import HEADER_KEY, Incomplete, check_frame
from memscope.format.header import Segment, parse_header
from memscope.format.segment_names import thin_name
from memscope.recorder.segment_encoder import SegmentEncoder
from memscope.recorder.step_sums import LastMoves, thin

READ_BYTES = 1 << 18
GATHERED_ROWS = 1 << 13
WORTHWHILE = 0.5  # of its bytes: what is not thinned to less is not worth keeping


class NotWorthwhile(Exception):
    """Sums would make the segment hardly smaller."""


class Thinner:
    """Downsamples the segment at ``source``, which holds ``rows`` events."""

    def __init__(self, source: Path, rows: int, moves: LastMoves) -> None:
        """Raises OSError, or the error of a damaged segment."""
        self.source = source
        self.target = thin_name(source)
        self.bytes = 0
        self._moves = moves
        self._whole_bytes = source.stat().st_size
        self._read_bytes = READ_BYTES
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        data = self._read(0)
        frame = check_frame(data, 0)
        self._opening = data[: frame.length]
        schema = pa.ipc.read_schema(pa.py_buffer(self._opening))
        header = json.loads(schema.metadata[HEADER_KEY])
        self._offset = frame.length
        self._encoder = SegmentEncoder(header, _thinned(header, rows))
        self._head_sequence = self._encoder.segment.first_sequence
        with contextlib.suppress(FileNotFoundError):
            self.target.unlink()  # of a program that was killed
        self._append(self._encoder.begin())

    def advance(self, is_over: Callable[[], bool]) -> bool:
        """Work until ``is_over``, for at least one batch. Returns whether the result is in place.

        Raises NotWorthwhile, OSError, or the error of a damaged segment.
        """
        output = bytearray()
        is_done = self._take(output, is_over)
        if is_done:
            output += self._flush() + self._encoder.end()
        self._append(bytes(output))
        if self.bytes > WORTHWHILE * self._whole_bytes:
            raise NotWorthwhile
        if is_done:
            os.replace(self.target, self.source)
        return is_done

    def abandon(self) -> None:
        """Delete the unfinished result."""
        with contextlib.suppress(OSError):
            self.target.unlink()

    def _take(self, output: bytearray, is_over: Callable[[], bool]) -> bool:
        data, position = self._read(self._offset), 0
        while True:
            try:
                frame = check_frame(data, position, base=self._offset)
            except Incomplete:
                if len(data) < self._read_bytes:
                    raise  # the segment's end, without its end marker
                self._read_bytes *= 1 if position else 4
                break
            if not frame.rows:
                return True
            message = data[position : position + frame.length]
            output += self._add(decode_batch(self._opening, message), frame.sequence)
            position += frame.length
            if is_over():
                break
        self._offset += position
        return False

    def _add(self, batch: pa.RecordBatch, sequence: int) -> bytes:
        if sequence == self._head_sequence and self._encoder.segment.number > 1:
            head = self._encoder.encode(batch)  # the facts before it: a batch of their own
            self._encoder.uncount(batch)
            return head
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        return self._flush() if self._waiting_rows >= GATHERED_ROWS else b""

    def _flush(self) -> bytes:
        if not self._waiting:
            return b""
        table = pa.Table.from_batches(self._waiting).combine_chunks()
        self._waiting, self._waiting_rows = [], 0
        return self._encoder.encode(thin(table.to_batches()[0], self._moves))

    def _read(self, offset: int) -> bytes:
        with open(self.source, "rb", buffering=0) as file:
            file.seek(offset)
            return file.read(self._read_bytes)

    def _append(self, data: bytes) -> None:
        with open(self.target, "ab", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
        self.bytes += len(data)


def _thinned(header: dict[str, object], rows: int) -> Segment:
    return replace(parse_header(header).segment, rows=rows)
