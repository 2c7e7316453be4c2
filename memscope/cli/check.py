"""Judge recordings by limits. Exit code 1 where one is broken or a named one was not measured."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memscope.cli.opening import add_warmup, read_summary
from memscope.cli.text import align
from memscope.cli.verdicts import verdict_lines
from memscope.errors import MemscopeError
from memscope.text import clean

if TYPE_CHECKING:
    from memscope.analysis.limits import Limit
    from memscope.analysis.summary import Summary

# The worst first: a broken limit says more than that events are missing.
_BY_WEIGHT = (1, 3, 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("recordings", metavar="RECORDING", nargs="*", help="files that memscope recorded")
    add(
        "--limit",
        metavar="'FIGURE OP VALUE'",
        action="append",
        default=[],
        help="a limit that counts, like 'memory.peak_bytes <= 2 GiB'; a bare FIGURE takes its "
        "default. Instead of those of [tool.memscope] in pyproject.toml; with none anywhere the "
        "defaults count",
    )
    add_warmup(parser)
    add("--json", action="store_true", help="print it as JSON; an array for several recordings")
    add("--list", action="store_true", help="list all figures with their defaults")


def run(args: argparse.Namespace) -> int:
    """Judge each recording; the worst of their exit codes."""
    if args.list:
        print("\n".join(_table()))
        return 0
    if not args.recordings:
        raise MemscopeError("No recording is named.", "Write `memscope check RECORDING`.")
    from memscope.analysis.limits import exit_code

    limits = _limits(args.limit)
    summaries = [
        (path, read_summary(path, warm_up=args.warm_up, limits=limits)) for path in args.recordings
    ]
    if args.json:
        found = [{"recording": path, **summary.to_json()} for path, summary in summaries]
        print(json.dumps(found[0] if len(found) == 1 else found, indent=2, allow_nan=False))
    else:
        print("\n\n".join("\n".join(_lines(path, summary)) for path, summary in summaries))
    codes = {exit_code(summary.verdicts, summary.state) for _, summary in summaries}
    return next(code for code in _BY_WEIGHT if code in codes)


def _limits(written: list[str]) -> tuple[Limit, ...]:
    from memscope.analysis.limits import parse_limit

    return tuple(parse_limit(text) for text in written or _configured_limits(Path.cwd()))


def _configured_limits(folder: Path) -> list[str]:
    """Limits of the nearest pyproject.toml, from ``folder`` upward, that has [tool.memscope]."""
    for path in (each / "pyproject.toml" for each in (folder, *folder.parents)):
        if path.is_file() and (section := _section(path)) is not None:
            limits = section.get("limits", [])
            if not isinstance(limits, list) or not all(isinstance(text, str) for text in limits):
                raise MemscopeError(
                    f"{path} has limits in [tool.memscope] that are no list of texts.",
                    'Write limits = ["driver.calls_per_step == 0"].',
                )
            return limits
    return []


def _section(path: Path) -> dict[str, Any] | None:
    import tomllib

    try:
        tool = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError) as error:
        raise MemscopeError(f"{path} cannot be read ({error}).", "Mend it.") from None
    section = tool.get("memscope") if isinstance(tool, dict) else None
    return section if isinstance(section, dict) else None


def _lines(path: str, summary: Summary) -> list[str]:
    """What became of the limits of one recording."""
    named = [verdict for verdict in summary.verdicts if verdict.is_named]
    defaults = [verdict for verdict in summary.verdicts if not verdict.is_named]
    note = " (partial)" if summary.state.is_partial else ""
    lines = [clean(f"{path}: {summary.state}")]
    if named:
        lines += [f"limits{note}", *verdict_lines(named)]
    shown = verdict_lines(defaults)
    if shown:
        lines += [f"defaults{', shown only' if named else ''}{note}", *shown]
    silent = [verdict for verdict in defaults if verdict.value is None]
    if silent:
        names = dict.fromkeys(verdict.figure for verdict in silent)
        lines.append(f"without a value: {', '.join(names)}")
    return [*lines, _conclusion(summary)]


def _conclusion(summary: Summary) -> str:
    named = [verdict for verdict in summary.verdicts if verdict.is_named]
    counting = named or summary.verdicts
    broken = sum(verdict.verdict == "fail" for verdict in counting)
    unmeasured = sum(verdict.verdict == "not measured" for verdict in named)
    held = sum(verdict.verdict in ("pass", "warn") for verdict in counting)
    words = [f"{held} of {len(counting)} limits hold"]
    if broken:
        words.append(f"{broken} broken")
    if unmeasured:
        words.append(f"{unmeasured} could not be measured")
    if summary.state.is_partial:
        words.append("the recording is partial")
    return f"{', '.join(words)}."


def _table() -> list[str]:
    from memscope.analysis.figures import FIGURES

    lines = []
    for figure in FIGURES:
        defaults = " and ".join(default.limit for default in figure.limits)
        lines += align([(figure.name, figure.unit, defaults or "no default")], indent="")
        lines.append(f"    {figure.definition}")
    return lines
