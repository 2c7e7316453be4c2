"""The events of a recording for other programs: Arrow, Parquet, or a trace for Perfetto."""

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
    add(
        "--to",
        required=True,
        choices=sorted(_WRITERS),
        help="arrow, parquet (kinds stand by name), or perfetto: a trace for ui.perfetto.dev",
    )
    add("-o", "--output", metavar="FILE", required=True, help="the file to write")
    add("--force", action="store_true", help="overwrite FILE")


def run(args: argparse.Namespace) -> int:
    """Write the events; 3 where the recording is partial."""
    from memscope.recording import open_recording

    path = Path(args.output)
    with open_recording(args.recording) as recording:
        with appearing(path, force=args.force) as unfinished:
            written = _WRITERS[args.to](recording, unfinished)
        state = recording.state
    note = f"; the recording is partial ({state})" if state.is_partial else ""
    print(f"{path}: {written}{note}", file=sys.stderr)
    return 3 if state.is_partial else 0


def _write_arrow(recording: Recording, path: Path) -> str:
    import pyarrow as pa

    schema = _schema(recording)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    rows = 0
    with open(path, "xb") as file, pa.ipc.new_stream(file, schema, options=options) as writer:
        for batch in recording.batches():
            writer.write_batch(batch.record.replace_schema_metadata(schema.metadata))
            rows += batch.rows
    return f"{rows:,} events"


def _write_parquet(recording: Recording, path: Path) -> str:
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
    return f"{rows:,} events"


def _write_perfetto(recording: Recording, path: Path) -> str:
    from memscope.interop.perfetto_trace import TraceWriter

    writer = TraceWriter(recording.header, recording.state)
    with open(path, "xb") as file:
        file.write(writer.begin())
        for batch in recording.batches():
            file.write(writer.add(batch))
        file.write(writer.end())
    left_out = [f"{count:,} {what}" for what, count in writer.left_out.items()]
    without = f"; left out: {', '.join(left_out)}" if left_out else ""
    return f"{writer.written:,} events{without}"


# What each writes, in words
_WRITERS: dict[str, Callable[[Recording, Path], str]] = {
    "arrow": _write_arrow,
    "parquet": _write_parquet,
    "perfetto": _write_perfetto,
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
