"""Results of the analysis → the charts of the page, in its order."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.block_picture import recorded_picture
from memscope.analysis.residency_map import ResidencyMap
from memscope.analysis.timeline import Timeline
from memscope_dashboards.html.block_chart import draw_blocks
from memscope_dashboards.html.chart import Chart
from memscope_dashboards.html.memory_chart import draw_memory
from memscope_dashboards.html.residency_chart import draw_residency
from memscope_dashboards.html.step_charts import draw_durations, draw_work


def draw_charts(timeline: Timeline, residency_map: ResidencyMap) -> tuple[Chart, ...]:
    """Every chart. One without anything to draw says so, but for the map that few have."""
    return (
        draw_memory(timeline),
        *_draw_map(timeline),
        draw_residency(residency_map),
        draw_work(timeline),
        draw_durations(timeline),
    )


def _draw_map(timeline: Timeline) -> Iterator[Chart]:
    found = recorded_picture(timeline)
    if found is not None:
        yield draw_blocks(found)
