"""Writes docs/metrics.md from the tables of metrics and readings: python docs/write_metrics.py"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from memscope.analysis.metrics.table import METRICS, MetricDefinition
from memscope.analysis.timeline.reading_names import READINGS

PAGE = Path(__file__).with_name("metrics.md")
BEGIN = "<!-- written by docs/write_metrics.py -->"
END = "<!-- end of what docs/write_metrics.py writes -->"


def page_text(page: str) -> str:
    """The page with its tables anew; what stands outside of the two comments stays."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def tables() -> str:
    """A table of all metrics, then each metric by area, then every reading."""
    lines = ["## Overview", "", "| metric | unit | default limit |", "|---|---|---|"]
    lines += [f"| `{each.name}` | {each.unit} | {defaults(each)} |" for each in METRICS]
    lines.append("")
    area = ""
    for metric in METRICS:
        if metric.area != area:
            area = metric.area
            lines += [f"## {area}", ""]
        lines += [*metric_lines(metric), ""]
    lines += ["## Readings", "", "| reading | unit | meaning |", "|---|---|---|"]
    lines += [f"| `{each.name}` | {each.unit or 'count'} | {each.meaning} |" for each in READINGS]
    return "\n".join(lines) + "\n"


def metric_lines(metric: MetricDefinition) -> Iterator[str]:
    """One metric as a heading and a list."""
    better = f", {metric.direction} is better" if metric.direction else ""
    yield f"### `{metric.name}`"
    yield ""
    yield sentence(metric.definition)
    yield ""
    yield f"- Unit: {metric.unit}{better}"
    yield f"- Default limit: {defaults(metric)}"
    yield f"- When: {metric.moment}{', after warm-up' if metric.is_after_warmup else ''}"
    yield f"- Applies to: {metric.applies}"
    if metric.advice:
        yield f"- If broken: {metric.advice}"


def defaults(metric: MetricDefinition) -> str:
    """The default limits as they are written."""
    texts = [
        f"`{each.limit}`" + (f" (warns unless `{each.warn}`)" if each.warn else "")
        for each in metric.limits
    ]
    return " and ".join(texts) or "–"


def sentence(text: str) -> str:
    """``text`` with a capital and a full stop."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


if __name__ == "__main__":
    PAGE.write_text(page_text(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
