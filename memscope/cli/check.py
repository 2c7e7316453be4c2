"""Judge recordings by limits. Exit code 1 where one is broken or a named one was not measured."""

from __future__ import annotations

import argparse
import json
import sys
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING

from memscope.atomic_file import check_free
from memscope.cli.opening import add_warmup
from memscope.cli.output import check_apart
from memscope.cli.text.run_summary import file_notes
from memscope.cli.text.verdicts import verdict_lines
from memscope.errors import MemscopeError
from memscope.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memscope.analysis.limits.limits import Limit, Verdict
    from memscope.analysis.summary.summary import Summary
    from memscope.cli.checking import Checked, CheckedRun

# The worst first: a broken limit says more than that events are missing.
_BY_WEIGHT = (1, 3, 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    text = "files that memscope recorded, folders or globs of a run's: each process is judged"
    add("recordings", metavar="RECORDING", nargs="*", help=text)
    add(
        "--limit",
        metavar="'METRIC OP VALUE'",
        action="append",
        default=[],
        help="a limit that counts: on a metric ('memory.peak_bytes <= 2 GiB'; a bare METRIC takes "
        "its default), a reading ('torch.reserved_bytes.peak <= 6 GiB') or a ratio ('A / B >= 1')."
        " It takes the place of those on the same metric in --limits, and these of those of "
        "[tool.memscope] in pyproject.toml; with none anywhere the defaults count",
    )
    add("--limits", metavar="FILE", help="a TOML file of limits: limits = [...]")
    add("--baseline", metavar="FILE", help="limits as well: what metrics came to before")
    add("--tolerance", metavar="SHARE", help="how much worse than the baseline is fine: 5%%")
    add(
        "--write-baseline",
        metavar="FILE",
        help="keep these metrics, and the readings that limits name, as the baseline in FILE, also "
        "where a limit is broken: the verdicts and the exit code are as without it",
    )
    text = "write the verdicts as JUnit XML, too; over what --junit wrote before, no other file"
    add("--junit", metavar="FILE", help=text)
    add(
        "--force",
        action="store_true",
        help="overwrite any FILE of --junit, and in that of --write-baseline the metrics of these "
        "recordings; its tolerances and other sections stay, and what is no longer in it is named",
    )
    add_warmup(parser)
    add("--json", action="store_true", help="print it as JSON; an array for several recordings")
    add("--list", action="store_true", help="list all metrics and readings, with their defaults")


def run(args: argparse.Namespace) -> int:
    """Judge each recording; the worst of their exit codes."""
    if args.list:
        from memscope.cli.text.metric_list import metric_list

        print("\n".join(metric_list()))
        return 0
    if not args.recordings:
        raise MemscopeError("No recording is named.", "Write `memscope check RECORDING`.")
    from memscope.cli.checking import check_runs, read_rules
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
    """Before the work. Raises MemscopeError."""
    if args.junit and args.write_baseline and realpath(args.junit) == realpath(args.write_baseline):
        raise MemscopeError("--junit and --write-baseline name one file.", "Name two.")
    for name in filter(None, (args.junit, args.write_baseline)):
        check_apart(Path(name), sources)
    if args.junit is not None:
        from memscope.cli.junit import check_junit

        check_junit(Path(args.junit), force=args.force)
    if args.write_baseline is not None:
        check_free(Path(args.write_baseline), force=args.force)


def _exit_code(runs: Sequence[CheckedRun]) -> int:
    codes = {checked_run.exit_code for checked_run in runs}
    return next(code for code in _BY_WEIGHT if code in codes)


def _show(runs: Sequence[CheckedRun], *, as_json: bool) -> None:
    checked = [each for checked_run in runs for each in checked_run.processes]
    warnings = [text for each in checked for text in each.warnings]
    for warning in dict.fromkeys(warnings):
        print(f"memscope: {clean(warning)}", file=sys.stderr)
    if as_json:
        found = [{"recording": each.path, **each.summary.to_json()} for each in checked]
        print(json.dumps(found[0] if len(found) == 1 else found, indent=2, allow_nan=False))
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
            f"{partial.path} is partial, so that no baseline is written.", "Record it anew."
        )
    sections = {each.section: each.summary.metrics for each in checked}
    if len(sections) < len(checked):
        raise MemscopeError("These recordings are of several runs.", "Write one run's baseline.")
    check_free(path, force=force)
    rewrite = write_baseline(path, sections, checked[0].machine, limits)
    note = ", though not every limit holds" if _exit_code(runs) == 1 else ""
    if rewrite.lost:
        names = (each.words(with_section=len(sections) > 1) for each in rewrite.lost)
        note += f"; no longer in it: {', '.join(names)}"
    print(f"memscope: {clean(path)}: baseline written{note}", file=sys.stderr)
    written = read_baseline(path)
    if not any(map(written.holds_memory, sections)):
        from memscope.cli.checking import no_memory

        print(f"memscope: {no_memory(path)}", file=sys.stderr)


def _lines(checked: Checked, checked_run: CheckedRun) -> list[str]:
    """What became of the limits of one recording."""
    summary = checked.summary
    named = [verdict for verdict in summary.verdicts if verdict.is_named]
    defaults = [verdict for verdict in summary.verdicts if not verdict.is_named]
    note = " (partial)" if summary.state.is_partial else ""
    lines = [clean(f"{checked.title}: {summary.state}")]
    if named:
        lines += [f"limits{note}", *verdict_lines(named)]
    shown = verdict_lines(defaults)
    if shown:
        lines += [f"defaults{', shown only' if named else ''}{note}", *shown]
    return [*lines, *_without_value(summary), _conclusion(checked, checked_run)]


def _without_value(summary: Summary) -> Iterator[str]:
    """Metrics whose defaults have nothing to judge; of an absent device how many."""
    from memscope.analysis.summary.absent import unjudged_words

    unjudged = [verdict for verdict in _possible_defaults(summary) if verdict.value is None]
    if names := dict.fromkeys(verdict.metric for verdict in unjudged):
        yield f"without a value: {', '.join(names)}"
    if words := unjudged_words(summary):
        yield f"{words} (--json lists them)"


def _possible_defaults(summary: Summary) -> list[Verdict]:
    """Defaults, without those on the memory of a device where none is recorded."""
    from memscope.analysis.summary.absent import absent_defaults

    absent = absent_defaults(summary)
    return [each for each in summary.verdicts if not each.is_named and each not in absent]


def _conclusion(checked: Checked, checked_run: CheckedRun) -> str:
    summary = checked.summary
    named = [verdict for verdict in summary.verdicts if verdict.is_named]
    counting = named or _possible_defaults(summary)
    held = sum(verdict.verdict in ("pass", "warn") for verdict in counting)
    broken = [verdict for verdict in checked_run.breaking(checked) if verdict.value is not None]
    idle = sum(verdict.verdict == "not applicable" for verdict in counting)
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
