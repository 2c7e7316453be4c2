"""Results of the analysis → the charts of the page, in its order."""

from __future__ import annotations

from memscope.analysis.residency_map import ResidencyMap
from memscope.analysis.timeline import Timeline
from memscope_dashboards.html.chart import Chart
from memscope_dashboards.html.memory_chart import draw_memory
from memscope_dashboards.html.residency_chart import draw_residency
from memscope_dashboards.html.step_charts import draw_durations, draw_work


def draw_charts(timeline: Timeline, residency_map: ResidencyMap) -> tuple[Chart, ...]:
    """Every chart; one without anything to draw says so."""
    return (
        draw_memory(timeline),
        draw_residency(residency_map),
        draw_work(timeline),
        draw_durations(timeline),
    )
