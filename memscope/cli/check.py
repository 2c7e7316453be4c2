"""Fail if a limit is broken: exit code 1, also if a metric that a limit names was not measured."""

from __future__ import annotations

import argparse
import json
import sys
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING

from memscope.atomic_file import check_free
from memscope.cli.output_path import check_apart
from memscope.cli.recordings import RECORDING_HELP, add_warmup
from memscope.cli.text.run_table import file_notes
from memscope.cli.text.verdicts import verdict_lines
from memscope.errors import MemscopeError
from memscope.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memscope.analysis.limits.limits import Limit, Verdict
    from memscope.analysis.summary.summary import Summary
    from memscope.cli.check_runs import Checked, CheckedRun

# Worst first: a broken limit matters more than missing events.
_WORST_FIRST = (1, 3, 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("recordings", metavar="RECORDING", nargs="*", help=f"{RECORDING_HELP}; all are judged")
    add(
        "--limit",
        metavar="'METRIC OP VALUE'",
        action="append",
        default=[],
        help="a limit on a metric ('memory.peak_bytes <= 2 GiB'; METRIC alone means its default "
        "limit), on a reading ('torch.reserved_bytes.peak <= 6G') or on a ratio ('A / B >= 1'). "
        "Sizes: GiB, MiB, G and M are 1024-based, GB and MB 1000-based. --limit overrides "
        "--limits, which overrides [tool.memscope] in pyproject.toml, for the same metric. "
        "Without any of these the default limits decide",
    )
    add("--limits", metavar="FILE", help="a TOML file with limits = [...]")
    add("--baseline", metavar="FILE", help="a file of earlier values: metrics must not be worse")
    add("--tolerance", metavar="SHARE", help="how much worse than the baseline is allowed (5%%)")
    add(
        "--write-baseline",
        metavar="FILE",
        help="write these metrics, and the readings that limits name, to FILE as a baseline. "
        "Verdicts and exit code stay the same; FILE is written even if a limit is broken",
    )
    text = "also write the verdicts as JUnit XML; replaces only a file that --junit wrote"
    add("--junit", metavar="FILE", help=text)
    add(
        "--force",
        action="store_true",
        help="overwrite the FILE of --junit, and update the FILE of --write-baseline: tolerances "
        "and other sections stay, and metrics that are no longer in it are named",
    )
    add_warmup(parser)
    add("--json", action="store_true", help="print JSON; an array if there are several recordings")
    add(
        "--list",
        action="store_true",
        help="list all metrics with their default limits, and all readings",
    )


def run(args: argparse.Namespace) -> int:
    """Judge each recording. Returns the worst of their exit codes."""
    if args.list:
        from memscope.cli.text.metric_list import metric_list

        print("\n".join(metric_list()))
        return 0
    if not args.recordings:
        raise MemscopeError("A recording is missing.", "Write `memscope check RECORDING`.")
    from memscope.cli.check_runs import check_runs, read_rules
    from memscope.reader.run_files import find_run

    files = [find_run(argument) for argument in args.recordings]
    _check_outputs(args, [path for each in files for path in each.paths])
    rules = read_rules(args)
    runs = check_runs(files, rules, warm_up=args.warm_up)
    _show(runs, as_json=args.json)
    for note in dict.fromkeys(note for each in files for note in file_notes(each)):
        print(f"memscope: {note}", file=sys.stderr)
    if args.junit is not None:
        from memscope.cli.junit import write_junit

        write_junit(Path(args.junit), runs, force=args.force)
    if args.write_baseline is not None:
        _write_baseline(Path(args.write_baseline), runs, rules.limits, force=args.force)
    return _exit_code(runs)


def _check_outputs(args: argparse.Namespace, sources: Sequence[Path]) -> None:
    """Raises MemscopeError if an output file cannot be written, before any work is done."""
    if args.junit and args.write_baseline and realpath(args.junit) == realpath(args.write_baseline):
        raise MemscopeError("--junit and --write-baseline name the same file.", "Name two files.")
    for name in filter(None, (args.junit, args.write_baseline)):
        check_apart(Path(name), sources)
    if args.junit is not None:
        from memscope.cli.junit import check_junit

        check_junit(Path(args.junit), force=args.force)
    if args.write_baseline is not None:
        check_free(Path(args.write_baseline), force=args.force)


def _exit_code(runs: Sequence[CheckedRun]) -> int:
    codes = {checked_run.exit_code for checked_run in runs}
    return next(code for code in _WORST_FIRST if code in codes)


def _show(runs: Sequence[CheckedRun], *, as_json: bool) -> None:
    checked = [each for checked_run in runs for each in checked_run.processes]
    warnings = [text for each in checked for text in each.warnings]
    for warning in dict.fromkeys(warnings):
        print(f"memscope: {clean(warning)}", file=sys.stderr)
    if as_json:
        results = [{"recording": each.path, **each.summary.to_json()} for each in checked]
        print(json.dumps(results[0] if len(results) == 1 else results, indent=2, allow_nan=False))
        return
    blocks = [_lines(each, checked_run) for checked_run in runs for each in checked_run.processes]
    print("\n\n".join("\n".join(block) for block in blocks))


def _write_baseline(
    path: Path, runs: Sequence[CheckedRun], limits: Sequence[Limit], *, force: bool
) -> None:
    from memscope.analysis.limits.baseline import read_baseline, write_baseline

    checked = [each for checked_run in runs for each in checked_run.processes]
    partial = next((each for each in checked if each.summary.state.is_partial), None)
    if partial is not None:
        raise MemscopeError(
            f"{partial.path} is partial, so no baseline was written.", "Record it again."
        )
    sections = {each.section: each.summary.metrics for each in checked}
    if len(sections) < len(checked):
        raise MemscopeError(
            "These recordings belong to several runs.", "Write the baseline of one run."
        )
    check_free(path, force=force)
    rewrite = write_baseline(path, sections, checked[0].machine, limits)
    note = ", although a limit is broken" if _exit_code(runs) == 1 else ""
    if rewrite.lost:
        names = (each.words(with_section=len(sections) > 1) for each in rewrite.lost)
        note += f"; no longer in it: {', '.join(names)}"
    print(f"memscope: {clean(path)}: baseline written{note}", file=sys.stderr)
    written = read_baseline(path)
    if not any(map(written.holds_memory, sections)):
        from memscope.cli.check_runs import no_memory

        print(f"memscope: {no_memory(path)}", file=sys.stderr)


def _lines(checked: Checked, checked_run: CheckedRun) -> list[str]:
    """The verdicts on one recording, and a conclusion."""
    summary = checked.summary
    named = [verdict for verdict in summary.verdicts if verdict.is_named]
    defaults = [verdict for verdict in summary.verdicts if not verdict.is_named]
    note = " (partial)" if summary.state.is_partial else ""
    lines = [clean(f"{checked.title}: {summary.state}")]
    if named:
        lines += [f"limits{note}", *verdict_lines(named)]
    shown = verdict_lines(defaults)
    if shown:
        lines += [f"default limits{', which do not decide here' if named else ''}{note}", *shown]
    return [*lines, *_without_value(summary), _conclusion(checked, checked_run)]


def _without_value(summary: Summary) -> Iterator[str]:
    """Metrics with a default limit but no value; those that need a device only as a count."""
    from memscope.analysis.summary.no_device import no_device_words

    unjudged = [verdict for verdict in _possible_defaults(summary) if verdict.value is None]
    if names := dict.fromkeys(verdict.metric for verdict in unjudged):
        yield f"no value: {', '.join(names)}"
    if words := no_device_words(summary):
        yield f"{words} (--json lists them)."


def _possible_defaults(summary: Summary) -> list[Verdict]:
    """Verdicts on default limits, without those that need a device if none was recorded."""
    from memscope.analysis.summary.no_device import defaults_without_device

    absent = defaults_without_device(summary)
    return [each for each in summary.verdicts if not each.is_named and each not in absent]


def _conclusion(checked: Checked, checked_run: CheckedRun) -> str:
    from memscope.analysis.limits.limits import Outcome  # slow to import

    summary = checked.summary
    named = [verdict for verdict in summary.verdicts if verdict.is_named]
    counting = named or _possible_defaults(summary)
    held = sum(verdict.verdict in (Outcome.PASS, Outcome.WARN) for verdict in counting)
    broken = [verdict for verdict in checked_run.breaking(checked) if verdict.value is not None]
    idle = sum(verdict.verdict == Outcome.NOT_APPLICABLE for verdict in counting)
    unjudged = sum(verdict.value is None for verdict in counting) - idle
    words = ["1 limit holds" if held == 1 else f"{held} limits hold"]
    for count, what in (
        (len(broken), "broken"),
        (unjudged, "could not be judged"),
        (idle, "not applicable"),
    ):
        if count:
            words.append(f"{count} {what}")
    if summary.state.is_partial:
        words.append("the recording is partial")
    return f"{', '.join(words)}."
