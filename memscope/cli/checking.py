"""What `memscope check` judges recordings by, and what it finds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from memscope.analysis.limits.baseline import (
    DEFAULT_TOLERANCE,
    Baseline,
    BaselineLimits,
    read_baseline,
)
from memscope.analysis.limits.limits import (
    Limit,
    Verdict,
    breaking,
    measured_limits,
    override,
    parse_limits,
    run_exit_code,
)
from memscope.analysis.limits.machine_class import MachineClass, find_machine_class
from memscope.analysis.summary.summary import Summary, summarize
from memscope.analysis.timeline.read import read_timeline
from memscope.analysis.timeline.timeline import Timeline
from memscope.configuration import (
    Configuration,
    parse_tolerance,
    read_configuration,
    read_limits_file,
)
from memscope.errors import MemscopeError
from memscope.reader.recording import Recording
from memscope.reader.run_files import RunFiles
from memscope.reader.state import State

SECTION = "recording"


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits, and a baseline whose sections are limits as well.

    ``is_baseline_asked``: on this command line, so that it must have something to say.
    """

    limits: tuple[Limit, ...]
    baseline: Baseline | None
    tolerance: float
    is_baseline_asked: bool

    def baseline_limits(self, section: str, machine: MachineClass) -> BaselineLimits:
        """Those of one recording, and warnings. A configured baseline may be of tests alone."""
        if self.baseline is None or (
            section not in self.baseline.sections and not self.is_baseline_asked
        ):
            return BaselineLimits()
        found = self.baseline.limits(section, machine, self.tolerance)
        if found.limits and not self.baseline.holds_memory(section):
            return replace(found, warnings=(*found.warnings, no_memory(self.baseline.path)))
        return found


@dataclass(frozen=True, slots=True)
class Checked:
    """One process's recording, judged. ``section``: what a baseline calls it.

    ``is_compared``: whether a baseline had something to say of it.
    """

    path: str
    title: str
    section: str
    machine: MachineClass
    summary: Summary
    warnings: tuple[str, ...]
    is_compared: bool


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """The processes of one run."""

    processes: tuple[Checked, ...]

    @property
    def exit_code(self) -> int:
        """Of all of them."""
        return run_exit_code(
            [(each.summary.verdicts, each.summary.state) for each in self.processes]
        )

    def breaking(self, checked: Checked) -> tuple[Verdict, ...]:
        """The verdicts on one process that make the exit code 1."""
        measured = measured_limits([each.summary.verdicts for each in self.processes])
        return breaking(checked.summary.verdicts, measured)


def no_memory(path: Path) -> str:
    """Of a baseline that no growth of memory breaks."""
    return (
        f"{path} holds no memory metric, so that it says nothing of memory: write it with a limit "
        "on a reading, like --limit 'host.rss_bytes.peak <= 2 GiB'"
    )


def read_rules(args: argparse.Namespace) -> Rules:
    """From the command line, then the file it names, then pyproject.toml. Raises MemscopeError."""
    configured = read_configuration(Path.cwd())
    limits = override(parse_limits(args.limit), _file_limits(args.limits))
    limits = override(limits, parse_limits(configured.limits, str(configured.path)))
    baseline = _find_baseline(args, configured)
    if args.tolerance is not None and baseline is None:
        raise MemscopeError("--tolerance is that of a baseline.", "Name one with --baseline FILE.")
    tolerance = configured.tolerance if args.tolerance is None else parse_tolerance(args.tolerance)
    return Rules(
        limits,
        baseline,
        DEFAULT_TOLERANCE if tolerance is None else tolerance,
        is_baseline_asked=args.baseline is not None,
    )


def _file_limits(name: str | None) -> tuple[Limit, ...]:
    return () if name is None else parse_limits(read_limits_file(Path(name)), name)


def _find_baseline(args: argparse.Namespace, configured: Configuration) -> Baseline | None:
    """One that is being written anew is no limit, unless it is asked for."""
    if args.baseline is not None:
        return read_baseline(Path(args.baseline))
    if configured.baseline is None or args.write_baseline is not None:
        return None
    return read_baseline(configured.baseline)


def check_runs(
    files: Sequence[RunFiles], rules: Rules, *, warm_up: int | None
) -> tuple[CheckedRun, ...]:
    """Judge each process of the runs in ``files``. Raises MemscopeError."""
    count = sum(len(run.paths) for run in files)
    checked, number = [], 0
    for run in files:
        processes = []
        for path in run.paths:
            number += 1
            with Recording(path) as recording:
                timeline = read_timeline(recording, warmup_steps=warm_up)
                state = run.within(recording.state)
            processes.append(_check(timeline, state, path, rules, number if count > 1 else 0))
        checked.append(CheckedRun(tuple(processes)))
    if rules.is_baseline_asked:
        _demand_comparison([each for run in checked for each in run.processes])
    return tuple(checked)


def _demand_comparison(checked: Sequence[Checked]) -> None:
    """A baseline that is asked for and says nothing must not pass. Raises MemscopeError."""
    if not any(each.is_compared for each in checked):
        raise MemscopeError(
            f"Nothing can be judged by the baseline: {checked[0].warnings[0]}.",
            "Write it anew: --write-baseline FILE --force.",
        )


def _check(timeline: Timeline, state: State, source: Path, rules: Rules, number: int) -> Checked:
    """``number``: of the recording among several, 0 where it is alone."""
    header, path = timeline.header, str(source)
    rank = "" if header.rank is None else f", rank {header.rank}"
    section = SECTION
    if number:
        section = f"{SECTION} {number}" if header.rank is None else f"rank {header.rank}"
    machine = find_machine_class(timeline)
    found = rules.baseline_limits(section, machine)
    return Checked(
        path,
        f"{path} (process {header.pid}{rank})" if number else path,
        section,
        machine,
        summarize(timeline, state, limits=(*rules.limits, *found.limits), path=path),
        found.warnings,
        bool(found.limits),
    )
