"""Write an HTML report: one file that works offline."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from memscope.atomic_file import atomic_write, check_free
from memscope.cli.file_kind import HEAD_BYTES, FileKind, file_kind, unpacked
from memscope.cli.output_path import check_apart, output_folder
from memscope.cli.recordings import AT_HELP, RECORDING_HELP, add_warmup, read_processes
from memscope.cli.requirements import require
from memscope.cli.text.run_table import file_notes
from memscope.errors import MemscopeError

if TYPE_CHECKING:
    from memscope.analysis.summary.residency_map import ResidencyMap
    from memscope.analysis.timeline.timeline import Timeline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("recording", metavar="RECORDING", help=f"{RECORDING_HELP}, or a torch memory snapshot")
    add(
        "-o",
        "--output",
        metavar="FILE",
        help="the report to write (default: the recording's name with .html)",
    )
    add("--force", action="store_true", help="overwrite FILE if it exists")
    add("--at", metavar="WHEN", default="end", help=AT_HELP)
    add_warmup(parser)


def run(args: argparse.Namespace) -> int:
    """Write the report and print its path. Returns 3 if a recording is partial."""
    if is_snapshot(args.recording):
        return _report_snapshot(args)
    path = report_path(args.recording, args.output)
    is_partial = write_report(
        args.recording, path, force=args.force, at=args.at, warm_up=args.warm_up
    )
    print(path)
    return 3 if is_partial else 0


def is_snapshot(name: str) -> bool:
    """Whether ``name`` is a file that looks like a torch memory snapshot."""
    path = Path(name)
    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            return file_kind(unpacked(stream.read(HEAD_BYTES))) is FileKind.SNAPSHOT
    except (OSError, MemscopeError):
        return False  # reading it as a recording then says what is wrong


def _report_snapshot(args: argparse.Namespace) -> int:
    if args.at != "end" or args.warm_up is not None:
        raise MemscopeError("A memory snapshot has no steps.", "Leave out --at and --warm-up.")
    source = Path(args.recording)
    path = Path(args.output) if args.output else output_folder() / f"{source.stem}.html"
    with require("dashboards", "plotly"):
        from memscope_dashboards.html.snapshot_page import render_snapshot
    from memscope.analysis.diagnosis.snapshot.picture import read_snapshot_picture

    check_apart(path, [source])
    check_free(path, force=args.force)
    page = render_snapshot(source.name, read_snapshot_picture(source))
    with atomic_write(path, force=args.force) as unfinished:
        unfinished.write_text(page, encoding="utf-8", newline="\n")
    print(path)
    return 0


def report_path(recording: str, output: str | None = None) -> Path:
    """``output`` if given, else the first recording's name with .html in the output folder."""
    from memscope.reader.run_files import find_run

    return Path(output) if output else output_folder() / f"{find_run(recording).first.stem}.html"


def write_report(
    source: str | os.PathLike[str],
    path: Path,
    *,
    force: bool = False,
    at: str = "end",
    warm_up: int | None = None,
) -> bool:
    """Write the report of the run ``source`` to ``path``. Returns whether a recording is partial.

    The details are those of the run's main process. Raises MemscopeError if a recording cannot be
    read or the report cannot be written; ``path`` is then unchanged.
    """
    with require("dashboards", "plotly"):
        from memscope_dashboards.html.report import render_report
        from memscope_dashboards.html.run_overview import RunOverview
    from memscope.analysis.summary.alignment import align_run
    from memscope.analysis.summary.run_summary import summarize_run
    from memscope.reader.run_files import find_run

    files = find_run(source)
    check_apart(path, files.paths)
    check_free(path, force=force)  # before the work, too
    parts = list(read_processes(files, at=at, warm_up=warm_up))
    run = summarize_run([(name, summary) for name, summary, _ in parts])
    timelines = [timeline for _, _, timeline in parts]
    shown = run.holder
    timeline = timelines[run.processes.index(shown)]
    overview = RunOverview(run, align_run(run, timelines), shown)
    page = render_report(
        shown.summary,
        timeline,
        _read_map(shown.path, timeline, at),
        overview if overview.is_needed else None,
    )
    with atomic_write(path, force=force) as unfinished:
        unfinished.write_text(page, encoding="utf-8", newline="\n")
    for note in file_notes(files):
        print(f"memscope: {note}", file=sys.stderr)
    return run.is_partial


def _read_map(path: str, timeline: Timeline, at: str) -> ResidencyMap:
    from memscope.analysis.summary.residency_map import read_residency_map
    from memscope.analysis.timeline.moment import PastEnd
    from memscope.reader.recording import Recording

    with Recording(path) as recording:
        try:
            return read_residency_map(recording, timeline, at=at)
        except PastEnd:  # this process ended before the others
            return read_residency_map(recording, timeline)
