"""Write the events of a recording for other programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memscope.atomic_file import atomic_write
from memscope.cli.output_path import check_apart
from memscope.cli.recordings import RECORDING_HELP
from memscope.cli.text.run_table import file_notes

if TYPE_CHECKING:
    from memscope.reader.recording import Recording
    from memscope.reader.run_files import RunFiles
    from memscope.reader.scanner import State

    # Returns what was written, in words, and the state of each recording
    Writer = Callable[[RunFiles, Path], tuple[str, list[State]]]

METADATA_KEY = "memscope.export"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("recording", metavar="RECORDING", help=RECORDING_HELP)
    add(
        "--to",
        required=True,
        choices=sorted(_WRITERS),
        help="arrow or parquet: the events of the run's first process (parquet names the kinds of "
        "events); perfetto: a trace of all its processes for ui.perfetto.dev",
    )
    add("-o", "--output", metavar="FILE", required=True, help="the file to write")
    add("--force", action="store_true", help="overwrite FILE if it exists")


def run(args: argparse.Namespace) -> int:
    """Write the events. Returns 3 if a recording is partial."""
    from memscope.reader.run_files import find_run

    path, files = Path(args.output), find_run(args.recording)
    check_apart(path, files.paths)
    with atomic_write(path, force=args.force) as unfinished:
        written, states = _WRITERS[args.to](files, unfinished)
    partial = [state for state in states if state.is_partial]
    note = f"; the recording is partial ({partial[0]})" if partial else ""
    print(f"{path}: {written}{note}", file=sys.stderr)
    for line in file_notes(files):
        print(f"memscope: {line}", file=sys.stderr)
    return 3 if partial else 0


def _first(write: Callable[[Recording, Path], str]) -> Writer:
    """A writer that writes the run's first process only."""

    def write_first(files: RunFiles, path: Path) -> tuple[str, list[State]]:
        from memscope.reader.recording import Recording

        with Recording(files.first) as recording:
            return write(recording, path), [recording.state]

    return write_first


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


def _write_perfetto(files: RunFiles, path: Path) -> tuple[str, list[State]]:
    """Write one trace of all processes: traces that follow each other in a file are one trace."""
    from memscope.interop.perfetto.trace import TraceWriter
    from memscope.reader.recording import Recording

    states, first, written, left_out = [], None, 0, Counter[str]()
    with open(path, "xb") as file:
        for source in files.paths:
            with Recording(source) as recording:
                first = first or recording.header
                writer = TraceWriter(recording.header, recording.state, first=first)
                file.write(writer.begin())
                for batch in recording.batches():
                    file.write(writer.add(batch))
                file.write(writer.end())
                states.append(files.within(recording.state))
            written += writer.written
            left_out.update(writer.left_out)
    return f"{written:,} events{_without(left_out)}{_of(len(states))}", states


def _without(left_out: Counter[str]) -> str:
    words = ", ".join(f"{count:,} {what}" for what, count in left_out.items())
    return f"; left out: {words}" if words else ""


def _of(processes: int) -> str:
    return f"; {processes:,} processes" if processes > 1 else ""


_WRITERS: dict[str, Writer] = {
    "arrow": _first(_write_arrow),
    "parquet": _first(_write_parquet),
    "perfetto": _write_perfetto,
}


def _schema(recording: Recording) -> Any:
    """The recording's columns, with its header and state as JSON in the metadata."""
    about = {**asdict(recording.header), "state": asdict(recording.state)}
    return recording.schema.with_metadata({METADATA_KEY: json.dumps(about)})


def _kind_names(kinds: tuple[str, ...], codes: Any) -> Any:
    import pyarrow as pa

    values = [
        kinds[code] if 0 <= code < len(kinds) else f"kind {code}" for code in range(-128, 128)
    ]
    return pa.array(values).take(codes.cast(pa.int64()).to_numpy() + 128)
