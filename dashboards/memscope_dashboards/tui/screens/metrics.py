"""All metrics with their definitions, and all verdicts with their reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.binding import BindingType

from memscope.analysis.metrics.metric import Metric
from memscope.analysis.metrics.table import find_definition
from memscope.text import clean
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.line import Line, paragraph, rule, spread
from memscope_dashboards.tui.reading import metric_text
from memscope_dashboards.tui.screens.snapshot_screen import ScrollingScreen
from memscope_dashboards.tui.widgets.lines import LinesWidget
from memscope_dashboards.tui.widgets.verdicts import ORDER, Verdicts


class AllMetrics(LinesWidget):
    """Name, value and definition of each metric, those with a value first; the others' reason."""

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Line]:
        """See the class."""
        if snapshot.summary is None:
            return []
        lines = [rule("Metrics", (), width)]
        found = snapshot.summary.metrics.values()
        for metric in sorted(found, key=lambda metric: metric.value is None):
            lines += metric_lines(metric, width)
        return lines


def metric_lines(metric: Metric, width: int) -> list[Line]:
    """One metric."""
    role = "dim" if metric.value is None else "strong"
    name = (clean(metric.name, 120), "text")
    definition = find_definition(metric.name)
    text = definition.definition if definition is not None else ""
    text += f" ({metric.device_words})" if metric.device_words else ""
    text += f" ({metric.reason})" if metric.reason else ""
    head = spread((name,), ((metric_text(metric), role),), width)
    return [head, *paragraph(clean(text, 400), "dim", width, indent=2)]


class MetricsScreen(ScrollingScreen):
    """Verdicts first."""

    BINDINGS: ClassVar[list[BindingType]] = [("v", "dismiss", "Back")]

    def compose_parts(self) -> Iterator[LinesWidget]:
        """See the class."""
        verdicts = Verdicts()
        verdicts.with_reasons = ORDER
        yield verdicts
        yield AllMetrics()
