"""The recordings of one run. Files with the same run id belong together."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from memscope.errors import MemscopeError
from memscope.format.header import Header
from memscope.reader.scanner import Scanner, is_locked_by_writer
from memscope.reader.state import State

PATTERN = "*.mscope"
HEADER_BYTES = 1 << 20  # at most
SKEW_NS = 10_000_000_000  # of clocks: a file system's and that of the machine that records


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Files of one run: the first process, then the processes it started.

    Each process has its newest file, which brings its older segments when opened. ``unreadable``:
    files beside them without a readable header. ``left_out``: the unreadable files that belong to
    this run and did not begin just now. ``newer_than``: number of older runs in the same folder.
    """

    paths: tuple[Path, ...]
    unreadable: tuple[Path, ...] = ()
    newer_than: int = 0
    left_out: tuple[Path, ...] = ()

    @property
    def first(self) -> Path:
        """The file of the run's first process."""
        return self.paths[0]

    def within(self, state: State) -> State:
        """The state of one recording, shown as part of the whole run."""
        return replace(state, left_out=tuple(path.name for path in self.left_out))


def find_run(argument: str | os.PathLike[str]) -> RunFiles:
    """The run at ``argument``: a file, a folder or a glob. Of several runs, the newest.

    For a file, the processes that it started (``STEM.PID.mscope`` beside it) are included. Raises
    MemscopeError if there is no recording.
    """
    text = os.fspath(argument)
    if not text:  # an unset variable of a shell, say: not this folder's newest run
        raise MemscopeError("The recording has no name.", "Name a file or folder of one.")
    path = Path(text)
    if path.is_dir():
        return _newest_run(path.glob(PATTERN), text)
    if not path.exists() and glob.has_magic(text):
        return _newest_run(map(Path, glob.glob(text)), text)
    return _with_children(path)


def _with_children(path: Path) -> RunFiles:
    beside = path.parent.glob(f"{glob.escape(path.stem)}.*{path.suffix}")
    children = sorted(child for child in beside if child != path)
    if not children:
        return RunFiles((path,))
    header = read_header(path)
    if header is None:
        return RunFiles((path,))
    found, unreadable = _read_headers(children)
    same = {
        child: other for child, other in _newest_segments(found).items() if _is_child(other, header)
    }
    paths = (path, *sorted(same, key=lambda child: same[child].started_at_ns))
    return RunFiles(paths, unreadable, left_out=_left_out(unreadable, paths, header))


def _is_child(header: Header, first: Header) -> bool:
    return header.run_id == first.run_id and header.pid != first.pid


def _newest_run(paths: Iterable[Path], argument: str) -> RunFiles:
    found, unreadable = _read_headers(sorted(path for path in paths if path.is_file()))
    if not found:
        raise MemscopeError(f"{argument} holds no recording.", "Name a folder or file of one.")
    found = _newest_segments(found)
    runs: dict[str, list[Path]] = {}
    for path in sorted(found, key=lambda path: (found[path].started_at_ns, str(path))):
        runs.setdefault(found[path].run_id, []).append(path)
    newest = max(runs.values(), key=lambda run: found[run[0]].started_at_ns)
    left_out = _left_out(unreadable, newest, found[newest[0]])
    return RunFiles(tuple(newest), unreadable, len(runs) - 1, left_out)


def _newest_segments(found: dict[Path, Header]) -> dict[Path, Header]:
    """The files without older segments of each recording."""
    newest: dict[tuple[str, str, int, int], Path] = {}
    for path, header in found.items():
        other = newest.get(header.recording)
        if other is None or header.segment.number > found[other].segment.number:
            newest[header.recording] = path
    return {path: found[path] for path in newest.values()}


def _read_headers(paths: Iterable[Path]) -> tuple[dict[Path, Header], tuple[Path, ...]]:
    headers = {path: read_header(path) for path in paths}
    found = {path: header for path, header in headers.items() if header is not None}
    return found, tuple(path for path in headers if path not in found)


def _left_out(unreadable: Iterable[Path], run: Iterable[Path], first: Header) -> tuple[Path, ...]:
    """The ``unreadable`` files that belong to the run whose first process has the header ``first``.

    They are recognised by their run id, else by name if they were written since the run began.
    """
    names = {_family(path) for path in run}
    return tuple(
        path
        for path in unreadable
        if (found := _read_damaged(path)) is not None
        and (found == first.run_id if found else _family(path) in names and _is_since(path, first))
    )


def _is_since(path: Path, first: Header) -> bool:
    """Whether the file was written since the run began, as far as can be told."""
    try:
        return path.stat().st_mtime_ns >= first.started_at_ns - SKEW_NS
    except OSError:
        return True


def _family(path: Path) -> tuple[Path, str]:
    """Folder and stem that a process's file, ``STEM.PID.mscope``, shares with its run's."""
    stem = re.sub(r"\.\d+(-\d+)?$", "", path.stem, flags=re.ASCII)
    return path.parent, stem


def _read_damaged(path: Path) -> str | None:
    """The run id in a file without a readable header; "" if it holds none.

    None if the file has just begun, was just removed, or is not a regular file.
    """
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            head = file.read(HEADER_BYTES)
            if is_locked_by_writer(file.fileno()):
                return None
    except FileNotFoundError:
        return None
    except OSError:
        return ""
    named = re.search(rb'"run_id": "([^"]{1,200})"', head)
    return named[1].decode(errors="replace") if named else ""


def read_header(path: Path) -> Header | None:
    """Header of the recording at ``path``; None if it cannot be read."""
    try:
        with Scanner(path) as scanner:
            return scanner.header
    except (MemscopeError, OSError):
        return None
