"""The metrics screen: all verdicts with their reasons, all metrics with their definitions."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.metrics.metric import Metric
from memscope.analysis.metrics.table import find_definition
from memscope.text import clean
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.metric_text import metric_text
from memscope_dashboards.tui.palette import Role
from memscope_dashboards.tui.screens.snapshot_screen import ScrollingScreen
from memscope_dashboards.tui.styled_line import StyledLine, paragraph, rule, spread
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget
from memscope_dashboards.tui.widgets.verdicts import ORDER, Verdicts


class AllMetrics(LinesWidget):
    """Name, value and definition of each metric. Metrics without a value come last."""

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[StyledLine]:
        """See the class."""
        if snapshot.summary is None:
            return []
        lines = [rule("Metrics", (), width)]
        metrics = snapshot.summary.metrics.values()
        for metric in sorted(metrics, key=lambda metric: metric.value is None):
            lines += metric_lines(metric, width)
        return lines


def metric_lines(metric: Metric, width: int) -> list[StyledLine]:
    """Name and value on one line, the definition below."""
    role = Role.DIM if metric.value is None else Role.STRONG
    name = (clean(metric.name, 120), Role.TEXT)
    definition = find_definition(metric.name)
    text = definition.definition if definition is not None else ""
    text += f" ({metric.device_words})" if metric.device_words else ""
    text += f" ({metric.reason})" if metric.reason else ""
    head = spread((name,), ((metric_text(metric), role),), width)
    return [head, *paragraph(clean(text, 400), Role.DIM, width, indent=2)]


class MetricsScreen(ScrollingScreen):
    """All verdicts, then all metrics."""

    def compose_parts(self) -> Iterator[LinesWidget]:
        """See the class."""
        verdicts = Verdicts()
        verdicts.with_reasons = ORDER
        yield verdicts
        yield AllMetrics()
