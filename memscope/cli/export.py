"""The events of a recording as an Arrow stream or a Parquet file, for other programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memscope.cli.output import appearing

if TYPE_CHECKING:
    from memscope.recording import Recording

METADATA_KEY = "memscope.export"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("recording", metavar="RECORDING", help="a file that memscope recorded")
    add("--to", required=True, choices=sorted(_WRITERS), help="in parquet, kinds stand by name")
    add("-o", "--output", metavar="FILE", required=True, help="the file to write")
    add("--force", action="store_true", help="overwrite FILE")


def run(args: argparse.Namespace) -> int:
    """Write the events; 3 where the recording is partial."""
    from memscope.recording import open_recording

    path = Path(args.output)
    with open_recording(args.recording) as recording:
        with appearing(path, force=args.force) as unfinished:
            rows = _WRITERS[args.to](recording, unfinished)
        state = recording.state
    note = f"; the recording is partial ({state})" if state.is_partial else ""
    print(f"{path}: {rows:,} events{note}", file=sys.stderr)
    return 3 if state.is_partial else 0


def _write_arrow(recording: Recording, path: Path) -> int:
    import pyarrow as pa

    schema = _schema(recording)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    rows = 0
    with open(path, "xb") as file, pa.ipc.new_stream(file, schema, options=options) as writer:
        for batch in recording.batches():
            writer.write_batch(batch.record.replace_schema_metadata(schema.metadata))
            rows += batch.rows
    return rows


def _write_parquet(recording: Recording, path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(recording)
    place = schema.get_field_index("kind")
    schema = schema.set(place, pa.field("kind", pa.string()))
    rows = 0
    with open(path, "xb") as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in recording.batches():
            columns = batch.record.columns
            columns[place] = _kind_names(recording.header.kinds, columns[place])
            writer.write_batch(pa.record_batch(columns, schema=schema))
            rows += batch.rows
    return rows


_WRITERS: dict[str, Callable[[Recording, Path], int]] = {
    "arrow": _write_arrow,
    "parquet": _write_parquet,
}


def _schema(recording: Recording) -> Any:
    """The recording's columns; its header and state as JSON, so that a cut one stays known."""
    about = {**asdict(recording.header), "state": asdict(recording.state)}
    return recording.schema.with_metadata({METADATA_KEY: json.dumps(about)})


def _kind_names(kinds: tuple[str, ...], codes: Any) -> Any:
    import pyarrow as pa

    values = [
        kinds[code] if 0 <= code < len(kinds) else f"kind {code}" for code in range(-128, 128)
    ]
    return pa.array(values).take(codes.cast(pa.int64()).to_numpy() + 128)
