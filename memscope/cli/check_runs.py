"""Judging the processes of runs by limits and a baseline."""

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
    """The limits to judge by, and a baseline, whose values are limits too.

    ``is_baseline_named``: the command line names the baseline, so at least one value must apply.
    """

    limits: tuple[Limit, ...]
    baseline: Baseline | None
    tolerance: float
    is_baseline_named: bool

    def baseline_limits(self, section: str, machine: MachineClass) -> BaselineLimits:
        """The baseline's limits for one recording, and warnings.

        A baseline from pyproject.toml may hold tests only; it then gives no limits and no warning.
        """
        if self.baseline is None or (
            section not in self.baseline.sections and not self.is_baseline_named
        ):
            return BaselineLimits()
        limits = self.baseline.limits(section, machine, self.tolerance)
        if limits.limits and not self.baseline.holds_memory(section):
            return replace(limits, warnings=(*limits.warnings, no_memory(self.baseline.path)))
        return limits


@dataclass(frozen=True, slots=True)
class Checked:
    """The verdicts on one process's recording.

    ``section``: its section in a baseline. ``is_compared``: whether a baseline gave it a limit.
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
    """The verdicts on all processes of one run."""

    processes: tuple[Checked, ...]

    @property
    def exit_code(self) -> int:
        """The exit code for all processes together."""
        return run_exit_code(
            [(each.summary.verdicts, each.summary.state) for each in self.processes]
        )

    def breaking(self, checked: Checked) -> tuple[Verdict, ...]:
        """The verdicts on one process that make the exit code 1."""
        measured = measured_limits([each.summary.verdicts for each in self.processes])
        return breaking(checked.summary.verdicts, measured)


def no_memory(path: Path) -> str:
    """The warning that a baseline cannot notice any growth of memory."""
    return (
        f"{path} holds no memory metric, so it cannot notice growth of memory: write it with a "
        "limit on a reading, like --limit 'host.rss_bytes.peak <= 2 GiB'"
    )


def read_rules(args: argparse.Namespace) -> Rules:
    """Limits of the command line, of the file it names, and of pyproject.toml.

    The first of these that has a limit on a metric decides. Raises MemscopeError.
    """
    configured = read_configuration(Path.cwd())
    limits = override(parse_limits(args.limit), _file_limits(args.limits))
    limits = override(limits, parse_limits(configured.limits, str(configured.path)))
    baseline = _find_baseline(args, configured)
    if args.tolerance is not None and baseline is None:
        raise MemscopeError("--tolerance needs a baseline.", "Name one with --baseline FILE.")
    tolerance = configured.tolerance if args.tolerance is None else parse_tolerance(args.tolerance)
    return Rules(
        limits,
        baseline,
        DEFAULT_TOLERANCE if tolerance is None else tolerance,
        is_baseline_named=args.baseline is not None,
    )


def _file_limits(name: str | None) -> tuple[Limit, ...]:
    return () if name is None else parse_limits(read_limits_file(Path(name)), name)


def _find_baseline(args: argparse.Namespace, configured: Configuration) -> Baseline | None:
    """The baseline to judge by. One that this command writes counts only if --baseline names it."""
    if args.baseline is not None:
        return read_baseline(Path(args.baseline))
    if configured.baseline is None or args.write_baseline is not None:
        return None
    return read_baseline(configured.baseline)


def check_runs(
    files: Sequence[RunFiles], rules: Rules, *, warm_up: int | None
) -> tuple[CheckedRun, ...]:
    """Judge every process of the runs in ``files``. Raises MemscopeError."""
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
    if rules.is_baseline_named:
        _demand_comparison([each for run in checked for each in run.processes])
    return tuple(checked)


def _demand_comparison(checked: Sequence[Checked]) -> None:
    """Raises MemscopeError if the named baseline gave no limit: that must not look like success."""
    if not any(each.is_compared for each in checked):
        raise MemscopeError(
            f"The baseline has no limit for this recording: {checked[0].warnings[0]}.",
            "Write it again: --write-baseline FILE --force.",
        )


def _check(timeline: Timeline, state: State, source: Path, rules: Rules, number: int) -> Checked:
    """Judge one process. ``number`` counts the recordings from 1; 0 if there is only one."""
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
