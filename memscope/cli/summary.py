"""Metrics and verdicts of a recording, as text or JSON."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from memscope.analysis.metrics.metric import value_words
from memscope.analysis.summary.absent import absent_of_device, absent_words
from memscope.analysis.timeline.facts import read_model, read_policy, read_versions
from memscope.cli.opening import add_warmup, read_run
from memscope.cli.text.columns import align
from memscope.cli.text.layers import layer_lines
from memscope.cli.text.ledger import ledger_lines
from memscope.cli.text.run_summary import file_notes, run_lines
from memscope.cli.text.verdicts import verdict_lines
from memscope.facts import Fact, StepSource
from memscope.text import clean
from memscope.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from memscope.analysis.metrics.metric import Metric
    from memscope.analysis.summary.summary import Summary
    from memscope.analysis.timeline.facts import Device

PARTIAL = " (partial)"
IN_ALL = ", in all processes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    text = "a file that memscope recorded, which may still grow; a folder or a glob of a run's; "
    add("recording", metavar="RECORDING", nargs="?", help=f"{text}without it, this machine now")
    add("--at", metavar="WHEN", default="end", help="batch:N, step:N, 12.5s, peak or end")
    add_warmup(parser)
    add("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the summary; 3 where a recording is partial."""
    if args.recording is None:
        from memscope.cli.text.machine import show_machine

        return show_machine(as_json=args.json)
    run, files = read_run(args.recording, at=args.at, warm_up=args.warm_up)
    for note in file_notes(files):
        print(f"memscope: {note}", file=sys.stderr)
    if args.json:
        print(json.dumps(run.to_json(), indent=2, allow_nan=False))
    else:
        shared = _shared([part.summary for part in run.processes])
        blocks = [run_lines(run)]
        blocks += [
            summary_lines(part.summary, part.path, args.at, shared) for part in run.by_interest
        ]
        blocks += [
            _without_value(shared, is_applicable=kind, place=IN_ALL) for kind in (True, False)
        ]
        print("\n\n".join("\n".join(block) for block in blocks if block))
    return 3 if run.is_partial else 0


def summary_lines(
    summary: Summary, path: str, at: str = "end", shared: Collection[Metric] = ()
) -> list[str]:
    """The summary as a person reads it; ``shared``: metrics without a value to leave out."""
    said = {*shared, *absent_of_device(summary)}
    own = [metric for metric in summary.metrics.values() if metric not in said]
    note = PARTIAL if summary.state.is_partial else ""
    blocks = [
        _head(summary, path, at),
        *map(ledger_lines, summary.ledgers),
        layer_lines(summary.layers),
        *_metric_blocks(summary, note),
        [f"verdicts{note}", *verdict_lines(summary.verdicts)],
        _without_value(own, is_applicable=True),
        _without_value(own, is_applicable=False),
        ["notes", *(f"  {clean(sentence.text)}" for sentence in summary.sentences)],
    ]
    lines: list[str] = []
    for block in blocks:
        if len(block) > 1:
            lines += ["", *block] if lines else block
    return lines


def _head(summary: Summary, path: str, at: str) -> list[str]:
    rows = [("recording", path), ("state", str(summary.state))]
    if summary.state.is_partial:
        rows.append(("PARTIAL", "metrics may miss events that happened"))
    if at != "end":
        seen = f"{summary.batches:,} of {summary.state.batches:,} batches"
        rows.append(("up to", f"{at} ({seen}, {summary.events:,} events)"))
    rows += [
        ("model", _model(summary)),
        ("device", _device(summary)),
        ("policy", _policy(summary)),
        ("versions", _versions(summary)),
        ("steps", _steps(summary)),
    ]
    return align([(key, clean(text, 400)) for key, text in rows if text], indent="")


def _metric_blocks(summary: Summary, note: str) -> Iterator[list[str]]:
    is_host = summary.device is not None and summary.device.is_host
    areas: dict[str, list[Metric]] = {}
    for metric in summary.metrics.values():
        if metric.value is not None:
            areas.setdefault(metric.name.partition(".")[0], []).append(metric)
    for area, found in areas.items():
        place = " (host)" if is_host and area == "memory" else ""
        rows = [(clean(metric.name, 80), _value(metric)) for metric in found]
        yield [f"{area}{place}{note}", *align(rows)]


def _value(metric: Metric) -> str:
    return (
        "" if metric.value is None else value_words(metric.value, metric.unit, metric.device_words)
    )


def _shared(summaries: Sequence[Summary]) -> list[Metric]:
    """Metrics that lack a value in each of several processes, for one reason; those left out that
    each of them counts as of a device that it has not."""
    first, *others = (summary.metrics for summary in summaries)
    said = set.intersection(*(set(absent_of_device(summary)) for summary in summaries))
    return [
        metric
        for name, metric in first.items()
        if others
        and metric.value is None
        and all(each.get(name) == metric for each in others)
        and metric not in said
    ]


def _without_value(metrics: Iterable[Metric], *, is_applicable: bool, place: str = "") -> list[str]:
    """Metrics that have none, under the reason that they share; nothing where all have one."""
    reasons: dict[str, list[str]] = {}
    for metric in metrics:
        if metric.value is None and metric.is_applicable == is_applicable:
            reasons.setdefault(metric.reason or "", []).append(clean(metric.name, 80))
    if not reasons:
        return []
    lines = [f"{'not measured' if is_applicable else 'not applicable'}{place}"]
    for reason, names in reasons.items():
        lines += [f"  {', '.join(names)}", f"    {clean(reason)}"]
    return lines


def _model(summary: Summary) -> str:
    model = read_model(summary.facts)
    words = [model.name, model.layers and f"{model.layers} layers"]
    if model.weights_bytes is not None:
        words.append(f"{format_bytes(model.weights_bytes)} of weights")
    return ", ".join(word for word in words if word)


def _device(summary: Summary) -> str:
    devices = summary.used_devices
    if not devices:
        absent = absent_words(summary)
        return f"{absent} (--json lists them)" if absent else ""
    whole = " in all" if len(devices) == 1 else ""
    sizes = dict.fromkeys(_sizes(device, whole) for device in devices)
    each = " each" if len(devices) > 1 and len(sizes) == 1 and any(sizes) else ""
    words = [summary.device_name, " and ".join(filter(None, sizes)) + each]
    words += ["no GPU"] if devices[0].is_host else []
    return ", ".join(filter(None, words))


def _sizes(device: Device, whole: str) -> str:
    sizes = [f"{format_bytes(device.total_bytes)}{whole}"] if device.total_bytes else []
    if device.limit_bytes and device.limit_bytes != device.total_bytes:
        sizes.append(f"limited to {format_bytes(device.limit_bytes)}")
    return ", ".join(sizes)


def _policy(summary: Summary) -> str:
    settings = read_policy(summary.facts)
    if settings.policy is None:
        return ""
    keep = "" if settings.keep is None else f", keep {settings.keep}"
    words = [
        f"{settings.policy}{keep}",
        settings.allocator and f"allocator {settings.allocator}",
        settings.unit and f"unit {settings.unit}",
        "prefetch" if settings.prefetch else "no prefetch",
    ]
    return ", ".join(word for word in words if word)


def _versions(summary: Summary) -> str:
    versions = list(read_versions(summary.facts).items())
    return ", ".join(f"{name} {number}" for name, number in versions[:8])


def _steps(summary: Summary) -> str:
    other = summary.other_steps
    ended = summary.steps - other
    if summary.facts.get(Fact.STEP_SOURCE) == StepSource.SECOND:
        return f"{ended:,} of a second each, for the program shows none"
    warmup = min(summary.warmup_steps - other, ended)
    numbers = f", numbered from {summary.first_step:,} on" if summary.first_step else ""
    before = f"; {other:,} before them came of other signs and are left out" if other else ""
    return f"{ended:,} ended{numbers}, {warmup:,} of them warm-up{before}"
