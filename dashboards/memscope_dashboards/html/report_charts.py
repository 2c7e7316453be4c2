"""The charts of the page, in order."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.memory_map.block_picture import recorded_picture
from memscope.analysis.summary.program import has_window
from memscope.analysis.summary.residency_map import ResidencyMap
from memscope.analysis.timeline.timeline import Timeline
from memscope_dashboards.html.block_chart import draw_blocks
from memscope_dashboards.html.chart import Chart
from memscope_dashboards.html.memory_chart import draw_memory
from memscope_dashboards.html.residency_chart import draw_residency
from memscope_dashboards.html.step_charts import draw_durations, draw_work, step_word


def draw_charts(timeline: Timeline, residency_map: ResidencyMap) -> tuple[Chart, ...]:
    """Every chart that applies to the program. A chart without data says why it is empty."""
    return (
        draw_memory(timeline),
        *_draw_map(timeline),
        *_draw_layers(timeline, residency_map),
        *draw_work(timeline),
        draw_durations(timeline),
    )


def _draw_layers(timeline: Timeline, residency_map: ResidencyMap) -> Iterator[Chart]:
    if has_window(timeline):
        yield draw_residency(residency_map, step_word(timeline))


def _draw_map(timeline: Timeline) -> Iterator[Chart]:
    found = recorded_picture(timeline)
    if found is not None:
        yield draw_blocks(found)
