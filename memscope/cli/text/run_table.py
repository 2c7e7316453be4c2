"""The processes of a run as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memscope.cli.text.columns import align
from memscope.text import clean
from memscope.units import format_bytes

if TYPE_CHECKING:
    from memscope.analysis.summary.run_summary import Process, RunSummary
    from memscope.reader.run_files import RunFiles

HEADINGS = (
    "pid",
    "rank",
    "peak, all GPUs",
    "peak host RSS",
    "steps",
    "started",
    "state",
    "command",
)


def run_lines(run: RunSummary) -> list[str]:
    """The table, and which process holds the memory. Empty if the run has one process."""
    if run.sentence is None:
        return []
    count = f"run of {len(run.processes)} processes (started: seconds after the first one)"
    rows = [HEADINGS, *map(_row, run.processes)]
    notes = [f"  {clean(note)}" for note in (run.sentence, run.measure) if note]
    return [count, *align(rows), *notes]


def _row(process: Process) -> tuple[str, ...]:
    header = process.summary.header
    return (
        str(header.pid),
        "" if header.rank is None else str(header.rank),
        process.device_words,
        _size(process.host_bytes),
        f"{process.summary.own_steps:,}",
        f"{process.offset_s:+.2f} s",
        process.summary.state.name,
        clean(process.command, 60),
    )


def _size(size: int | None) -> str:
    return "not measured" if size is None else format_bytes(size)


def file_notes(files: RunFiles) -> list[str]:
    """Notes on files in the folder that are not shown."""
    notes = []
    if files.newer_than:
        runs = "an older run is" if files.newer_than == 1 else f"{files.newer_than} older runs are"
        notes.append(f"{runs} in the folder too. Name one of its files to see it.")
    if files.unreadable:
        names = ", ".join(clean(path.name, 60) for path in files.unreadable[:3])
        count = len(files.unreadable)
        what = "1 file has" if count == 1 else f"{count} files have"
        notes.append(f"{what} no header and {'is' if count == 1 else 'are'} ignored: {names}")
    return notes
