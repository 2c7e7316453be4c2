"""The bytes of one segment of a recording: its header, its batches, its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from memscope.format.frames import BatchEncoder, encode_schema, event_schema
from memscope.format.header import Segment, with_segment


class SegmentEncoder:
    """Encodes one segment. Numbers of batches and rows continue those of the segment before."""

    def __init__(self, header: Mapping[str, Any], segment: Segment) -> None:
        self.segment = segment
        self.schema = event_schema(with_segment(header, segment))
        self.next_sequence = segment.first_sequence
        self.next_row = segment.first_row
        self._encoder = BatchEncoder(self.schema)

    @property
    def rows(self) -> int:
        """Number of events in the segment."""
        return self.next_row - self.segment.first_row

    def begin(self) -> bytes:
        """The bytes that open the file."""
        return encode_schema(self.schema)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """The bytes of the next batch."""
        data = self._encoder.encode(batch, sequence=self.next_sequence, first_row=self.next_row)
        self.next_sequence += 1
        self.next_row += batch.num_rows
        return data

    def uncount(self, batch: pa.RecordBatch) -> None:
        """Do not count the last batch: it repeats facts, or was not written."""
        self.next_row -= batch.num_rows

    def end(self) -> bytes:
        """The bytes that close the file."""
        return self._encoder.close(sequence=self.next_sequence, first_row=self.next_row)
