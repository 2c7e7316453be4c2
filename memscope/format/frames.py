"""One message of the file: written with a checksum, and checked before it is parsed.

A recording is an ordinary Arrow IPC stream. Every message carries a *tag* in its metadata: a line
of fixed width with sequence number, rows, body length and the CRC-32 of the whole message (marker,
lengths, flatbuffer, compressed body), computed with the CRC's own digits as zeros. So a reader
finds and checks messages by itself, and pyarrow never sees a damaged byte.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memscope.events import COLUMNS
from memscope.format.arrow import WRITE_OPTIONS, pa

MARKER = b"\xff\xff\xff\xff"
END = MARKER + b"\x00\x00\x00\x00"
TAG_KEY = b"memscope.frame"
HEADER_KEY = b"memscope.header"
MAX_METADATA_BYTES = 1 << 20
MAX_FRAME_BYTES = 1 << 28

_TAG = re.compile(
    rb"memscope-frame seq=(\d{10}) first=(\d{14}) rows=(\d{8}) body=(\d{12}) crc=([0-9a-f]{8})"
)


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole, checked message: its place in the file and what its tag says. Sequence 0 is the
    schema.
    """

    offset: int
    length: int
    sequence: int
    first_row: int
    rows: int


class Incomplete(Exception):
    """The bytes may be the start of a message that is not complete yet."""


class Broken(Exception):
    """The bytes are not a whole message."""


def event_schema(header: Mapping[str, Any]) -> pa.Schema:
    """The schema of every recording, with ``header`` as JSON and an empty tag in its metadata."""
    fields = [
        pa.field(column.name, getattr(pa, column.type)(), metadata={"unit": column.unit})
        for column in COLUMNS
    ]
    metadata = {HEADER_KEY: json.dumps(header), TAG_KEY: _tag(0, 0, 0, 0)}
    return pa.schema(fields, metadata=metadata)


def encode_schema(schema: pa.Schema) -> bytes:
    """The schema message that opens a file."""
    return _seal(bytearray(schema.serialize().to_pybytes()), 0)


class BatchEncoder:
    """Turns record batches into messages with a checksum."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def encode(self, batch: pa.RecordBatch, *, sequence: int, first_row: int) -> bytes:
        """The message for ``batch``; ``first_row`` rows came before it.

        Arrow writes into its own memory: a Python file would take Python's lock for each of the
        forty pieces of a message.
        """
        sink = pa.BufferOutputStream()
        tag = _tag(sequence, first_row, batch.num_rows, 0)
        stream = pa.ipc.new_stream(sink, self._schema, options=WRITE_OPTIONS)
        stream.write_batch(batch, custom_metadata={TAG_KEY: tag})
        message = bytearray(sink.getvalue())
        del message[: _metadata_end(message, 0)]  # the schema, which a stream begins with
        return _seal(message, len(message) - _metadata_end(message, 0))

    def close(self, *, sequence: int, first_row: int) -> bytes:
        """What closes a file: a message without rows, then the stream's end marker."""
        empty = pa.RecordBatch.from_pylist([], schema=self._schema)
        return self.encode(empty, sequence=sequence, first_row=first_row) + END


def check_frame(data: bytes | memoryview, position: int, *, base: int = 0) -> Frame:
    """The whole message at ``position`` of ``data``. ``base``: where ``data`` begins in the file.

    Raises Incomplete if more bytes could complete it, else Broken.
    """
    available = len(data) - position
    head = bytes(data[position : position + 8])
    if not (MARKER + head[4:]).startswith(head[:4]) or head[:4] != MARKER[: len(head)]:
        raise Broken
    if available < 8:
        raise Incomplete
    end = _metadata_end(data, position)
    if not 8 < end - position <= MAX_METADATA_BYTES:
        raise Broken
    if end > len(data):
        raise Incomplete
    metadata = bytes(data[position:end])
    tag = _TAG.search(metadata)
    if tag is None:
        raise Broken
    length = end - position + int(tag[4])
    if length > MAX_FRAME_BYTES:
        raise Broken
    if length > available:
        raise Incomplete
    crc = zlib.crc32(metadata[: tag.start(5)] + b"0" * 8 + metadata[tag.end(5) :])
    if zlib.crc32(data[end : position + length], crc) != int(tag[5], 16):
        raise Broken
    return Frame(base + position, length, int(tag[1]), int(tag[2]), int(tag[3]))


def _metadata_end(data: bytes | bytearray | memoryview, position: int) -> int:
    return position + 8 + int.from_bytes(data[position + 4 : position + 8], "little", signed=True)


def _tag(sequence: int, first_row: int, rows: int, body: int) -> bytes:
    text = f"memscope-frame seq={sequence:010d} first={first_row:014d} rows={rows:08d}"
    return f"{text} body={body:012d} crc=00000000".encode()


def _seal(message: bytearray, body_bytes: int) -> bytes:
    """Fill in body length and CRC of a message whose tag holds zeros for both."""
    end = len(message) - body_bytes
    tag = _TAG.search(message, 0, end)
    assert tag is not None, "a message without its tag"
    body, crc = tag.span(4), tag.span(5)
    tag = None  # the match exports the buffer that is written now
    message[body[0] : body[1]] = b"%012d" % body_bytes
    message[crc[0] : crc[1]] = b"%08x" % zlib.crc32(message)
    return bytes(message)
