"""A recording as one HTML file that works offline: verdicts, figures, charts."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from memscope.cli.needs import needing
from memscope.cli.opening import add_warmup
from memscope.cli.output import appearing, check_free, output_folder

if TYPE_CHECKING:
    from memscope.storage import State


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("recording", metavar="RECORDING", help="a file that memscope recorded; it may still grow")
    add("-o", "--output", metavar="FILE", help="the page to write (default: its name, .html)")
    add("--force", action="store_true", help="overwrite FILE")
    add("--at", metavar="WHEN", default="end", help="batch:N, step:N, 12.5s, peak or end")
    add_warmup(parser)


def run(args: argparse.Namespace) -> int:
    """Write the page and print its path; 3 where the recording is partial."""
    path = report_path(args.recording, args.output)
    state = write_report(args.recording, path, force=args.force, at=args.at, warm_up=args.warm_up)
    print(path)
    return 3 if state.is_partial else 0


def report_path(recording: str, output: str | None = None) -> Path:
    """``output``, else the recording's name with .html where files without `-o` go."""
    return Path(output) if output else output_folder() / f"{Path(recording).stem}.html"


def write_report(
    source: str | os.PathLike[str],
    path: Path,
    *,
    force: bool = False,
    at: str = "end",
    warm_up: int | None = None,
) -> State:
    """Write the page of the recording ``source`` at ``path``; the recording's state.

    Raises MemscopeError where one cannot be read or the other not written; then ``path`` is as
    it was.
    """
    with needing("dashboards", "plotly"):
        from memscope_dashboards.html.report import render_report
    from memscope.analysis.residency_map import read_residency_map
    from memscope.analysis.summary import summarize
    from memscope.analysis.timeline import read_timeline
    from memscope.recording import open_recording

    check_free(path, force=force)  # before the work, too
    with open_recording(source) as recording:
        timeline = read_timeline(recording, at=at, warmup_steps=warm_up)
        summary = summarize(timeline, recording.state)
        page = render_report(summary, timeline, read_residency_map(recording, timeline, at=at))
        with appearing(path, force=force) as unfinished:
            unfinished.write_text(page, encoding="utf-8", newline="\n")
        return recording.state
