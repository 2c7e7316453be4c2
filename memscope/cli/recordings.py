"""Opening recordings for a verb: shared options and help texts, and reading a run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from memscope.errors import MemscopeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memscope.analysis.limits.limits import Limit
    from memscope.analysis.summary.run_summary import RunSummary
    from memscope.analysis.summary.summary import Summary
    from memscope.analysis.timeline.timeline import Timeline
    from memscope.reader.run_files import RunFiles

RECORDING_HELP = "a recording, or a folder or glob with the recordings of one run"
AT_HELP = "moment to show: batch:N, step:N, 12.5s, peak or end (default: end)"


def warmup_steps(text: str) -> int:
    """The number of warm-up steps in ``--warm-up``. Raises MemscopeError."""
    if not text.isdecimal() or len(text) > 18:
        raise MemscopeError(f"--warm-up {text} is not a number of steps.", "Write --warm-up 2.")
    return int(text)


def add_warmup(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--warm-up N``."""
    parser.add_argument(
        "--warm-up",
        metavar="N",
        type=warmup_steps,
        help="number of warm-up steps that metrics leave out (default: as recorded, else 1)",
    )


def read_summary(
    path: str, *, at: str = "end", warm_up: int | None = None, limits: Sequence[Limit] = ()
) -> Summary:
    """The summary of the recording at ``path``. Raises MemscopeError."""
    from memscope.analysis.summary.summary import summarize
    from memscope.analysis.timeline.read import read_timeline
    from memscope.reader.recording import open_recording

    with open_recording(path) as recording:
        timeline = read_timeline(recording, at=at, warmup_steps=warm_up)
        return summarize(timeline, recording.state, limits=limits, path=path)


def read_run(
    argument: str, *, at: str = "end", warm_up: int | None = None
) -> tuple[RunSummary, RunFiles]:
    """All processes of one run. ``argument`` is a file, a folder or a glob.

    Raises MemscopeError.
    """
    from memscope.analysis.summary.run_summary import summarize_run
    from memscope.reader.run_files import find_run

    files = find_run(argument)
    parts = read_processes(files, at=at, warm_up=warm_up)
    return summarize_run([(path, summary) for path, summary, _ in parts]), files


def read_processes(
    files: RunFiles, *, at: str, warm_up: int | None
) -> Iterator[tuple[str, Summary, Timeline]]:
    """Read the processes of a run one by one at the moment ``at``, the first process first.

    A process that ended earlier is read at its end. Raises MemscopeError if a file cannot be read
    or if no process reaches ``at``.
    """
    from memscope.analysis.summary.summary import summarize
    from memscope.analysis.timeline.moment import PastEnd
    from memscope.analysis.timeline.read import read_timeline
    from memscope.reader.recording import Recording

    is_reached, refusals = False, []
    for path in files.paths:
        with Recording(path) as recording:
            try:
                timeline = read_timeline(recording, at=at, warmup_steps=warm_up)
                is_reached = True
            except PastEnd as error:
                refusals.append(error)
                timeline = read_timeline(recording, warmup_steps=warm_up)
            state = files.within(recording.state)
            yield str(path), summarize(timeline, state, path=str(path)), timeline
    if not is_reached:
        raise max(refusals, key=lambda refusal: refusal.last)
