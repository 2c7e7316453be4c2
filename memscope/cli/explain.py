"""Explain why memory ran out, from a log, a torch memory snapshot or a recording."""

from __future__ import annotations

import argparse
import gzip
import io
import json
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.cli.file_kind import HEAD_BYTES, NAME_A_FILE, FileKind, file_kind, unpacked
from memscope.cli.text.explanation import explanation_lines
from memscope.errors import MemscopeError

if TYPE_CHECKING:
    from memscope.analysis.timeline.timeline import Timeline
    from memscope.reader.scanner import State


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add(
        "file",
        metavar="FILE",
        help="a log, a torch memory snapshot or a recording; - reads standard input",
    )
    add("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the explanation. Returns 3 if a recording is partial, else 0."""
    explanation = explain(args.file)
    if args.json:
        print(json.dumps(explanation.to_json(), indent=2, allow_nan=False))
    else:
        print("\n".join(explanation_lines(explanation)))
    return 3 if explanation.is_partial else 0


def explain(name: str) -> Explanation:
    """Explain the file ``name``; "-" is standard input. Raises MemscopeError."""
    with _opened(name) as stream:
        head = stream.peek(HEAD_BYTES)[:HEAD_BYTES]
        inner = unpacked(head)
        kind = file_kind(inner)
        if kind is FileKind.LOG:
            return _explain_log(stream, is_packed=inner is not head)
        if name != "-":
            return _explain_file(kind, name)
        with tempfile.NamedTemporaryFile(suffix=".explain") as copy:
            shutil.copyfileobj(stream, copy)
            copy.flush()
            return _explain_file(kind, copy.name)


@contextmanager
def _opened(name: str) -> Iterator[io.BufferedReader]:
    if name == "-":
        if sys.stdin.isatty():
            raise MemscopeError(
                "Standard input is a terminal.", "Pipe a log into it, or name a file."
            )
        yield cast(io.BufferedReader, sys.stdin.buffer)
        return
    path = Path(name)
    if path.is_dir():
        raise MemscopeError(f"{name} is a folder.", NAME_A_FILE)
    try:
        stream = path.open("rb")
    except OSError as error:
        reason = error.strerror or str(error)
        raise MemscopeError(f"{name} cannot be read ({reason}).", NAME_A_FILE) from None
    with stream:
        yield stream


def _explain_log(stream: io.BufferedReader, *, is_packed: bool) -> Explanation:
    from memscope.analysis.diagnosis.log.explain import explain_log
    from memscope.interop.oom_log.reader import read_log

    if not is_packed:
        return explain_log(read_log(stream))
    try:
        with gzip.open(stream) as unpacked:
            return explain_log(read_log(cast(BinaryIO, unpacked)))
    except (OSError, EOFError, zlib.error):
        raise MemscopeError("The input is a damaged gzip file.", "Compress it again.") from None


def _explain_file(kind: FileKind, path: str) -> Explanation:
    if kind is FileKind.SNAPSHOT:
        from memscope.analysis.diagnosis.snapshot.explain import explain_snapshot

        return explain_snapshot(path)
    from memscope.analysis.diagnosis.recording.explain import explain_run

    return explain_run(_read_processes(path))


def _read_processes(path: str) -> Iterator[tuple[Timeline, State]]:
    """Read the processes of the run of ``path`` one by one, the first process first."""
    from memscope.analysis.timeline.read import read_timeline
    from memscope.reader.recording import Recording
    from memscope.reader.run_files import find_run

    files = find_run(path)
    for each in files.paths:
        with Recording(each) as recording:
            yield read_timeline(recording), files.within(recording.state)
