"""Charts show what the analysis found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.dashboards.html.small_runs import KEEP, LAYERS, SLAB_BYTES, record_nothing, record_run

pytest.importorskip("plotly")

from memscope import Recorder
from memscope.analysis.summary.residency_map import ResidencyMap, read_residency_map
from memscope.analysis.timeline.read import read_timeline
from memscope.analysis.timeline.timeline import Timeline
from memscope.reader.recording import open_recording
from memscope_dashboards.html.chart import ByteAxis, thin
from memscope_dashboards.html.report_charts import draw_charts
from memscope_dashboards.html.residency_chart import draw_residency


@pytest.fixture
def run(tmp_path: Path) -> tuple[Timeline, ResidencyMap]:
    return read(record_run(tmp_path / "run.mscope"))


def read(path: Path) -> tuple[Timeline, ResidencyMap]:
    with open_recording(path) as recording:
        timeline = read_timeline(recording)
        return timeline, read_residency_map(recording, timeline)


def traces(run: tuple[Timeline, ResidencyMap]) -> dict[str, Any]:
    charts = draw_charts(*run)
    return {
        trace.name or chart.key: trace
        for chart in charts
        if chart.figure is not None
        for trace in chart.figure.data
    }


def test_bands_are_the_bytes_of_the_steps(run: tuple[Timeline, ResidencyMap]) -> None:
    steps, drawn = run[0].steps, traces(run)
    for words, column in (
        ("weights ready", steps.resident_bytes),
        ("idle in weight pool", steps.idle_bytes),
    ):
        assert (drawn[words].y * SLAB_BYTES).tolist() == column.tolist()
        assert drawn[words].x.tolist() == (steps.end_ns / 1e9).tolist()


def test_bars_are_the_counts_of_the_steps(run: tuple[Timeline, ResidencyMap]) -> None:
    steps, drawn = run[0].steps, traces(run)
    assert drawn["layers uploaded"].y.tolist() == steps.uploads.tolist()
    assert drawn["driver allocations"].y.tolist() == steps.device_mallocs.tolist() == [1] * 8
    assert drawn["driver frees"].y.tolist() == steps.device_frees.tolist()
    assert (drawn["step"].y * 1e6).tolist() == pytest.approx(steps.duration_ns.tolist())


def test_map_marks_what_was_uploaded(run: tuple[Timeline, ResidencyMap]) -> None:
    cells = traces(run)["residency"].z
    assert cells[:, 0].tolist() == [1] * LAYERS
    assert cells[:, 5].tolist() == [1] * (LAYERS - KEEP) + [0] * KEEP


def test_map_of_many_steps_says_how_many_a_column_covers() -> None:
    first = np.arange(3) * 16
    shares = np.array([[1.0, 0.5, np.nan]])
    chart = draw_residency(ResidencyMap(shares, first, first + 15, 16))
    assert "Each column covers 16 steps" in chart.note
    assert chart.figure is not None
    assert chart.figure.data[0].x.tolist() == [7.5, 23.5, 39.5]


def test_limit_is_drawn_where_it_is_near(tmp_path: Path) -> None:
    near = traces(read(record_run(tmp_path / "near.mscope")))
    assert near["limit, 16.0 MiB"].y == (16.0, 16.0)
    timeline, found = read(record_run(tmp_path / "far.mscope", steps=2))
    memory = draw_charts(timeline, found)[0]
    assert not any("limit" in trace.name for trace in memory.figure.data)
    assert "The limit, 16.0 MiB, is far above the chart." in memory.note


def test_what_torch_holds_unused_is_drawn_below_the_device(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.mscope")
    for size in (3, 5):
        for name, mebibytes in (("allocated", 10), ("reserved", 10 + size), ("inactive_split", 1)):
            recorder.sample(f"torch.{name}_bytes", bytes=mebibytes << 20, device=0)
    recorder.close()
    memory = draw_charts(*read(tmp_path / "run.mscope"))[0]
    drawn = {trace.name: trace for trace in memory.figure.data}
    assert drawn["reserved, not allocated"].y.tolist() == [3, 5]
    assert drawn["in partly used segments"].y.tolist() == [1, 1]
    assert "unused, MiB" in [axis.title.text for axis in memory.figure.select_yaxes()]
    assert "Reserved, not allocated: memory that torch holds but does not use" in memory.note


def test_axes_carry_units(run: tuple[Timeline, ResidencyMap]) -> None:
    titles = [
        axis.title.text
        for chart in draw_charts(*run)
        for axis in (*chart.figure.select_xaxes(), *chart.figure.select_yaxes())
        if axis.title.text
    ]
    assert {"device, MiB", "process, MiB", "layers", "driver calls", "ms", "step"} <= set(titles)


def test_nothing_recorded_draws_nothing(tmp_path: Path) -> None:
    charts = draw_charts(*read(record_nothing(tmp_path / "run.mscope")))
    assert [chart.figure for chart in charts] == [None] * 2


@pytest.mark.parametrize(
    ("count", "unit"), [(0, "B"), (1023, "B"), (1024, "KiB"), (1 << 20, "MiB"), (3 << 30, "GiB")]
)
def test_axis_takes_the_largest_unit_that_fits(count: int, unit: str) -> None:
    assert ByteAxis.up_to(count).unit == unit


def test_thinned_steps_keep_their_peak() -> None:
    values = np.zeros(100_000, dtype=np.int64)
    values[54_321] = 7
    series = thin(np.arange(100_000), values)
    assert len(series) <= 2048
    assert series.maximum.max() == 7
