"""Compare two recordings or two memory snapshots. The largest change comes first."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from memscope.cli.file_kind import HEAD_BYTES, FileKind, file_kind, unpacked
from memscope.cli.recordings import add_warmup, read_summary
from memscope.cli.text.columns import align
from memscope.cli.text.settings import setting_lines
from memscope.cli.text.verdicts import verdict_lines
from memscope.errors import MemscopeError
from memscope.text import clean
from memscope.units import format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memscope.analysis.comparison.difference import Change, Difference
    from memscope.analysis.limits.limits import Verdict
    from memscope.reader.state import State

_SHOWN = 10
_TITLES = {"stack": "by call stack", "label": "by label", "stream": "by stream"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("before", metavar="A", help="the first recording or torch memory snapshot")
    add("after", metavar="B", help="the second one, of the same kind")
    add(
        "--limit",
        metavar="'diff.METRIC OP VALUE'",
        action="append",
        default=[],
        help="a limit on a change, like 'diff.peak_bytes <= 64 MiB'; the exit code is 1 if it is "
        "broken",
    )
    add_warmup(parser)
    add("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    """Print what changed. Returns 1 if a limit is broken, 3 if a recording is partial."""
    from memscope.analysis.comparison.difference import check_limits, judge_difference
    from memscope.analysis.limits.limits import exit_code

    check_limits(args.limit)
    difference, state = _read(args)
    verdicts = judge_difference(difference, args.limit)
    if args.json:
        print(json.dumps(_to_json(difference, verdicts, state), indent=2, allow_nan=False))
    else:
        print("\n".join(_lines(args, difference, verdicts)))
    return exit_code(verdicts, state)


def _read(args: argparse.Namespace) -> tuple[Difference, State]:
    from memscope.reader.state import State, StateName

    kinds = [_kind(path) for path in (args.before, args.after)]
    if kinds[0] != kinds[1]:
        raise MemscopeError(
            f"{args.before} is a {kinds[0]} and {args.after} is a {kinds[1]}.",
            "Name two files of the same kind.",
        )
    if kinds[0] is FileKind.SNAPSHOT:
        from memscope.analysis.comparison.snapshots import diff_snapshots

        return diff_snapshots(args.before, args.after), State(StateName.COMPLETE, 0, 0, 0, 0)
    from memscope.analysis.comparison.recordings import diff_recordings

    before = read_summary(args.before, warm_up=args.warm_up)
    after = read_summary(args.after, warm_up=args.warm_up)
    state = before.state if before.state.is_partial else after.state
    return diff_recordings(before, after), state


def _kind(path: str) -> FileKind:
    from memscope.interop.snapshot.guarded import file_size

    size = file_size(path)
    with open(path, "rb") as stream:
        head = stream.read(HEAD_BYTES)
    try:
        kind = file_kind(unpacked(head)) if size else FileKind.RECORDING
    except MemscopeError:  # its message also speaks of logs
        kind = FileKind.LOG
    if kind is FileKind.LOG:
        raise MemscopeError(
            f"{path} is neither a recording nor a torch memory snapshot.",
            "Name two recordings or two snapshots.",
        )
    return kind


def _to_json(difference: Difference, verdicts: Sequence[Verdict], state: State) -> dict[str, Any]:
    return {
        "kind": difference.kind,
        "state": state.name,
        "is_partial": difference.is_partial,
        "settings": _settings_json(difference),
        "metrics": {f"diff.{each.name}": each.to_json() for each in difference.metrics},
        "holders": {
            by: [{"name": each.name, **each.to_json()} for each in changes]
            for by, changes in difference.holders.items()
        },
        "limits": [
            {
                "limit": verdict.limit,
                "value": verdict.value,
                "verdict": verdict.verdict,
                "reason": verdict.reason,
            }
            for verdict in verdicts
        ],
    }


def _settings_json(difference: Difference) -> dict[str, Any] | None:
    if difference.settings is None:
        return None
    return {each.name: each.to_json() for each in difference.settings}


def _lines(
    args: argparse.Namespace, difference: Difference, verdicts: Sequence[Verdict]
) -> list[str]:
    note = " (partial)" if difference.is_partial else ""
    lines = [clean(f"{args.before} → {args.after}"), ""]
    if difference.settings is not None:
        lines += [*setting_lines(difference.settings), ""]
    lines.append(f"metrics{note}")
    lines += align(_row(change, change.name) for change in difference.metrics)
    for by, changes in difference.holders.items():
        if changes:
            lines += ["", f"live memory {_TITLES[by]}"]
            lines += align(_row(change, _innermost(change.name)) for change in changes[:_SHOWN])
            if len(changes) > _SHOWN:
                lines.append(f"  {len(changes) - _SHOWN:,} more in --json")
    if verdicts:
        lines += ["", f"limits{note}", *verdict_lines(verdicts)]
    return lines


def _row(change: Change, name: str) -> tuple[str, ...]:
    value = change.value
    if value is None:
        return (clean(name, 100), "not measured", "", clean(change.reason or "", 120))
    sign = "+" if value > 0 else "−" if value < 0 else "±"
    amount = f"{sign}{format_value(abs(value), change.value_unit)}"
    values = [format_value(each or 0.0, change.unit) for each in (change.before, change.after)]
    return (clean(name, 100), amount, _percent(change), f"{values[0]} → {values[1]}")


def _percent(change: Change) -> str:
    if not change.before:
        return "new" if change.value else ""
    return "gone" if not change.after else f"{change.relative:+.1%}".replace("-", "−")


def _innermost(name: str) -> str:
    """The innermost frames of a call stack. --json has all of them."""
    return " < ".join(name.split(" < ")[:2])
