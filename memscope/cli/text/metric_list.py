"""The list of all metrics and readings that a limit can name."""

from __future__ import annotations

import textwrap
from itertools import groupby

from memscope.analysis.metrics.definition import IN_NO_OTHER_RUN, MetricDefinition
from memscope.analysis.metrics.table import METRICS
from memscope.analysis.timeline.reading_names import READINGS, STATISTICS
from memscope.readings import ReadingDefinition

WIDTH = 100
_HEAD = (
    "A limit is METRIC OP VALUE, like 'driver.calls_per_step == 0'. Besides the metrics below, a "
    f"limit can name a statistic of a reading: READING.STATISTIC ({', '.join(STATISTICS)}), on one "
    "device READING[cuda:1].STATISTIC, or a ratio of two: 'torch.allocated_bytes.peak / "
    "torch.reserved_bytes.peak >= 0.8'. Sizes: GiB, MiB, G and M are 1024-based, GB and MB "
    "1000-based."
)
_READINGS = (
    "peak, min and end use all readings. p95 and median use readings within steps after warm-up; "
    "they are at most 0.2 % too high. growth is by how much the lowest reading of a step rises "
    "from step to step. With several devices the highest value counts, for min the lowest. A limit "
    "can also name samples that the program itself records."
)


def metric_list() -> list[str]:
    """The list, grouped by area, in lines of at most ``WIDTH`` columns."""
    lines = _wrap(_HEAD, "")
    for area, rows in groupby(METRICS, lambda row: row.area):
        lines += ["", area]
        for row in rows:
            lines += _metric_lines(row)
    lines += ["", "readings", *_wrap(_READINGS, "  ")]
    width = max(len(reading_name.name) for reading_name in READINGS)
    return lines + [_reading_line(reading_name, width) for reading_name in READINGS]


def _metric_lines(row: MetricDefinition) -> list[str]:
    better = f", {row.direction} is better" if row.direction else ""
    defaults = " and ".join(
        default.limit + (f" (warn unless {default.warn})" if default.warn else "")
        for default in row.limits
    )
    moment = row.moment + (", after warm-up" if row.is_after_warmup else "")
    texts = [
        f"{row.definition}.",
        f"When: {moment}. Applies to: {row.applies}. {_baseline(row)}".rstrip(),
        f"If broken: {row.advice}" if row.advice else "",
    ]
    lines = [f"  {row.name} ({row.unit}{better}): {defaults or 'no default limit'}"]
    return lines + [line for text in texts for line in _wrap(text, "      ")]


def _baseline(row: MetricDefinition) -> str:
    if not row.direction:
        return ""
    if row.repeats == IN_NO_OTHER_RUN:
        return "Baselines do not hold it, because it differs from run to run."
    of_tests = (
        " All tests share one process, so a baseline holds it only for tests with a limit on it."
    )
    return f"A baseline holds {row.repeats}.{of_tests if row.is_of_process else ''}"


def _reading_line(reading_name: ReadingDefinition, width: int) -> str:
    return (
        f"  {reading_name.name:{width}}  {reading_name.unit or 'count':5}  {reading_name.meaning}"
    )


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False
    )
