"""A summary as a person reads it: what is wrong first, then the metrics, then the details."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from memscope.analysis.limits.limits import Outcome
from memscope.analysis.metrics.metric import value_words
from memscope.analysis.summary.sentence import Severity
from memscope.cli.text.columns import align
from memscope.cli.text.layers import layer_lines
from memscope.cli.text.ledger import ledger_lines
from memscope.cli.text.run_table import run_lines
from memscope.cli.text.summary_head import head_lines
from memscope.cli.text.verdicts import verdict_lines
from memscope.text import clean

if TYPE_CHECKING:
    from memscope.analysis.limits.limits import Verdict
    from memscope.analysis.metrics.metric import Metric
    from memscope.analysis.summary.run_summary import RunSummary
    from memscope.analysis.summary.summary import Summary

PARTIAL = " (partial)"
IN_ALL = " in any process"
MAIN_AREAS = ("memory", "host", "step")
_TO_LOOK_AT = (Outcome.FAIL, Outcome.WARN, Outcome.NOT_MEASURED)
_TITLES = {Severity.ALARM: "alarms", Severity.WARNING: "warnings", Severity.NOTE: "notes"}


def run_summary_lines(run: RunSummary, at: str = "end", *, show_missing: bool = False) -> list[str]:
    """The table of a run's processes, then a summary of each, the most telling one first.

    ``show_missing``: list the metrics without a value, with their reasons.
    """
    summaries = [part.summary for part in run.processes]
    shared = _shared(summaries) if show_missing else []
    blocks = [run_lines(run)]
    for part in run.by_interest:
        blocks.append(summary_lines(part.summary, part.path, at, shared, show_missing=show_missing))
    if show_missing:
        blocks += _missing_blocks(shared, place=IN_ALL)
    else:
        blocks.append(_missing_line(summaries))
    return _join(blocks)


def summary_lines(
    summary: Summary,
    path: str,
    at: str = "end",
    listed: Collection[Metric] = (),
    *,
    show_missing: bool = True,
) -> list[str]:
    """The summary of one process. ``listed``: metrics without a value that stand elsewhere."""
    note = PARTIAL if summary.state.is_partial else ""
    areas = _metric_blocks(summary, note)
    blocks = [
        head_lines(summary, path, at),
        _sentences(summary, Severity.ALARM),
        _sentences(summary, Severity.WARNING),
        _limits(f"limits broken or close{note}", summary, is_held=False),
        *(lines for area, lines in areas.items() if area in MAIN_AREAS),
        *map(ledger_lines, summary.ledgers),
        layer_lines(summary.layers),
        *(lines for area, lines in areas.items() if area not in MAIN_AREAS),
        _limits(f"limits that hold{note}", summary, is_held=True),
        _sentences(summary, Severity.NOTE),
    ]
    if show_missing:
        rest = [metric for metric in summary.metrics.values() if metric not in listed]
        blocks += _missing_blocks(rest)
    return _join(blocks)


def _join(blocks: Iterable[list[str]]) -> list[str]:
    """The blocks that have lines, an empty line between them."""
    lines: list[str] = []
    for block in filter(None, blocks):
        lines += ["", *block] if lines else block
    return lines


def _sentences(summary: Summary, severity: Severity) -> list[str]:
    texts = [f"  {clean(each.text)}" for each in summary.sentences if each.severity is severity]
    return [_TITLES[severity], *texts] if texts else []


def _limits(title: str, summary: Summary, *, is_held: bool) -> list[str]:
    verdicts = [each for each in summary.verdicts if _is_held(each) is is_held]
    lines = verdict_lines(verdicts)
    return [title, *lines] if lines else []


def _is_held(verdict: Verdict) -> bool:
    return verdict.verdict not in _TO_LOOK_AT


def _metric_blocks(summary: Summary, note: str) -> dict[str, list[str]]:
    """Lines of the metrics that have a value, by area: what stands before the dot."""
    is_host = summary.device is not None and summary.device.is_host
    areas: dict[str, list[Metric]] = {}
    for metric in summary.metrics.values():
        if metric.value is not None:
            areas.setdefault(metric.name.partition(".")[0], []).append(metric)
    blocks = {}
    for area, metrics in areas.items():
        place = " (host)" if is_host and area == "memory" else ""
        rows = [(clean(metric.name, 80), _value(metric)) for metric in metrics]
        blocks[area] = [f"{area}{place}{note}", *align(rows)]
    return blocks


def _value(metric: Metric) -> str:
    return (
        "" if metric.value is None else value_words(metric.value, metric.unit, metric.device_words)
    )


def _missing_line(summaries: Sequence[Summary]) -> list[str]:
    """How many metrics have no value in any process, in one line; nothing if all have one."""
    missing: dict[str, bool] = {}
    for summary in summaries:
        for name, metric in summary.metrics.items():
            if all(
                name not in each.metrics or each.metrics[name].value is None for each in summaries
            ):
                missing[name] = missing.get(name, False) or metric.is_applicable
    counts = Counter(missing.values())
    parts = []
    if counts[True]:
        parts.append(f"{counts[True]} not measured")
    if counts[False]:
        parts.append(f"{counts[False]} not applicable")
    if not parts:
        return []
    what = "1 metric has" if len(missing) == 1 else f"{len(missing)} metrics have"
    return [f"{what} no value ({', '.join(parts)}). --all lists them with the reasons."]


def _shared(summaries: Sequence[Summary]) -> list[Metric]:
    """Metrics that have no value in each of several processes, for one reason."""
    first, *others = (summary.metrics for summary in summaries)
    return [
        metric
        for name, metric in first.items()
        if others and metric.value is None and all(each.get(name) == metric for each in others)
    ]


def _missing_blocks(metrics: Iterable[Metric], place: str = "") -> Iterator[list[str]]:
    """Metrics without a value, grouped by their reason."""
    missing = [metric for metric in metrics if metric.value is None]
    for title, is_applicable in (("not measured", True), ("not applicable", False)):
        reasons: dict[str, list[str]] = {}
        for metric in missing:
            if metric.is_applicable is is_applicable:
                reasons.setdefault(metric.reason or "", []).append(clean(metric.name, 80))
        lines = [f"{title}{place}"]
        for reason, names in reasons.items():
            lines += [f"  {', '.join(names)}", f"    {clean(reason)}"]
        if reasons:
            yield lines
