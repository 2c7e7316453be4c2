"""What every verb that reads a recording does first."""

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


def warmup_steps(text: str) -> int:
    """Steps of warm-up as the command line has them. Raises MemscopeError."""
    if not text.isdecimal() or len(text) > 18:
        raise MemscopeError(f"--warm-up {text} is no number of steps.", "Write --warm-up 2.")
    return int(text)


def add_warmup(parser: argparse.ArgumentParser) -> None:
    """``--warm-up N``."""
    parser.add_argument(
        "--warm-up",
        metavar="N",
        type=warmup_steps,
        help="leave the first N steps out of metrics (default: as recorded, else 1)",
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
    """All processes of the run that ``argument`` names: a file, a folder or a glob.

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
    """The processes of a run one by one, the first one first; those that ended before at their end.

    Raises MemscopeError, in the end also where none of them reaches ``at``.
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
