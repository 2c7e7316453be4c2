"""A recording that grows as a test says: batch by batch, without a thread or a clock."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

from memscope.events import COLUMNS, Kind
from memscope.format.frames import BatchEncoder, encode_schema, event_schema
from memscope.format.header import new_header
from memscope.recorder.rows import encode_rows

IDS = ("step", "layer", "device", "stream", "request", "thread")
MS = 1_000_000
SLAB, HEAD, LAYERS = 1 << 20, 3 << 20, 6


class GrowingFile:
    """Locked, hence running, until it is ended or dropped."""

    def __init__(self, path: Path, *, started_at_ns: int = 0, **header: object) -> None:
        schema = event_schema(new_header() | {"started_at_ns": started_at_ns} | header)
        self.path = path
        self._schema = schema
        self._encoder = BatchEncoder(schema)
        self._sequence = self._rows = 0
        part = path.with_suffix(".part")
        self._file = part.open("wb", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._file.write(encode_schema(schema))
        part.rename(path)

    def append(self, rows: list[dict[str, Any]]) -> None:
        """One batch."""
        self._sequence += 1
        values = [tuple(value(row, column.name) for column in COLUMNS) for row in rows]
        batch = encode_rows(values, 0, self._schema)
        message = self._encoder.encode(batch, sequence=self._sequence, first_row=self._rows)
        self._file.write(message)
        self._rows += len(rows)

    def write(self, data: bytes) -> None:
        """Bytes as they are."""
        self._file.write(data)

    def end(self) -> None:
        """What a recorder writes as it closes."""
        self._file.write(self._encoder.close(sequence=self._sequence + 1, first_row=self._rows))
        self.drop()

    def drop(self) -> None:
        """Close without an end marker, as a killed program does."""
        self._file.close()


def value(row: dict[str, Any], column: str) -> Any:
    return row.get(column, -1 if column in IDS else None)


def facts(name: str = "tiny", device: str = "HostDevice") -> list[dict[str, Any]]:
    """What the runner says before its first step."""
    said = {
        "device.0": {
            "name": device,
            "kind": "host",
            "total_bytes": 1 << 30,
            "limit_bytes": 1 << 24,
        },
        "model": {"name": name, "layers": LAYERS, "slab_bytes": SLAB, "head_bytes": HEAD},
        "policy": {"policy": "past", "keep": 2, "allocator": "pool", "unit": "slab"},
        "run.warmup_steps": 1,
        "run.kind": "q8-decode",
    }
    return [{"kind": Kind.FACT, "t_ns": 0, "name": key, "data": data} for key, data in said.items()]


def step(number: int, *, uploads: int = LAYERS, ms: int = 10) -> list[dict[str, Any]]:
    """One step that uploads its first layers, and evicts each as the second next one comes."""
    rows: list[dict[str, Any]] = []
    start = number * 100 * MS

    def add(kind: int, layer: int = -1, **fields: Any) -> None:
        t_ns = start + len(rows) * 1000
        rows.append({"kind": kind, "t_ns": t_ns, "step": number, "layer": layer, **fields})

    for layer in range(LAYERS):
        if layer < uploads:
            add(Kind.POOL_HIT, layer, name="8x2", bytes=SLAB)
            add(Kind.UPLOAD, layer, name="slab", bytes=SLAB, value=7, duration_ns=MS)
        add(Kind.LAYER, layer, duration_ns=MS)
        if layer >= 2:
            add(Kind.EVICT, layer - 2, bytes=SLAB, value=7, data={"reason": "window"})
            add(Kind.POOL_RETURN, layer - 2, name="8x2", bytes=SLAB)
    used = (4 + number) * SLAB
    add(Kind.SAMPLE, name="device.allocated_bytes", bytes=used)
    add(Kind.SAMPLE, name="host.rss_bytes", bytes=(64 + number) << 20)
    add(Kind.STEP, duration_ns=(ms + number) * MS)
    return rows


def recorded(path: Path, steps: int = 4) -> Path:
    """A whole recording: facts, then a batch a step."""
    file = GrowingFile(path)
    file.append(facts())
    for number in range(steps):
        file.append(step(number))
    file.end()
    return path
