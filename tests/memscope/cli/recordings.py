"""Recordings on disk, made of hand-written events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memscope.format.frames import BatchEncoder, encode_schema, event_schema
from memscope.format.header import new_header
from tests.memscope.analysis.build import Event, make_batch

BATCH_ROWS = 40


def write_recording(
    path: Path,
    rows: Sequence[Event],
    *,
    is_complete: bool = True,
    header: dict[str, Any] | None = None,
) -> Path:
    """A file of batches of ``BATCH_ROWS`` events; without its end it reads as cut."""
    schema = event_schema(header or new_header())
    encoder = BatchEncoder(schema)
    parts = [encode_schema(schema)]
    sequence = 0
    for sequence, start in enumerate(range(0, len(rows), BATCH_ROWS), 1):
        record = make_batch(rows[start : start + BATCH_ROWS]).record
        parts.append(encoder.encode(record, sequence=sequence, first_row=start))
    if is_complete:
        parts.append(encoder.close(sequence=sequence + 1, first_row=len(rows)))
    path.write_bytes(b"".join(parts))
    return path


def damage_batch(path: Path) -> None:
    """Flip a bit in the middle of the file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
