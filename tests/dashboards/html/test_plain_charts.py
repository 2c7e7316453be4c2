"""Charts of programs without layers or driver calls, and of several devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboards.html.small_runs import record_run

pytest.importorskip("plotly")

from memscope import Recorder
from memscope.analysis.summary.residency_map import read_residency_map
from memscope.analysis.timeline.read import read_timeline
from memscope.events import Kind
from memscope.reader.recording import open_recording
from memscope_dashboards.html.chart import Chart
from memscope_dashboards.html.report_charts import draw_charts

MIB = 1 << 20


def charts_of(path: Path) -> dict[str, Chart]:
    with open_recording(path) as recording:
        timeline = read_timeline(recording)
        charts = draw_charts(timeline, read_residency_map(recording, timeline))
    return {chart.key: chart for chart in charts}


def record_seconds(path: Path, *, steps: int = 0, calls: bool = False) -> Path:
    """Three seconds of a program on the host, then ``steps`` of its own."""
    recorder = Recorder(path)
    for source, count, length in (("second", 3, 10**9), ("optimizer", steps, 10**6)):
        if count:
            recorder.take_steps(source)
        for _ in range(count):
            recorder.sample("host.rss_bytes", bytes=100 * MIB)
            if calls:
                recorder.emit(Kind.DEVICE_MALLOC, -1, bytes=MIB)
            recorder.emit(Kind.STEP, recorder.begin_step(), duration_ns=length)
    recorder.close()
    return path


def record_program(path: Path, *, devices: int = 1, calls: bool = False) -> Path:
    """Three steps; device ``d`` holds 100 / (d + 1) MiB."""
    recorder = Recorder(path)
    for device in range(devices):
        gpu = {"name": "H200", "kind": "cuda", "total_bytes": 1 << 30}
        recorder.fact(f"cuda.{device}", gpu)
    for step in range(3):
        for device in range(devices):
            for place, name in enumerate(("allocated", "reserved")):
                size = (100 + place) * MIB // (device + 1)
                recorder.sample(f"torch.{name}_bytes", bytes=size, device=device)
        if calls:
            recorder.emit(Kind.DEVICE_MALLOC, step, bytes=MIB)
        recorder.emit(Kind.STEP, step, duration_ns=1000)
    recorder.close()
    return path


def test_a_program_of_torch_has_charts_of_memory_and_time_alone(tmp_path: Path) -> None:
    charts = charts_of(record_program(tmp_path / "run.mscope"))
    assert list(charts) == ["memory", "durations"]


def test_driver_calls_alone_are_drawn_without_uploads(tmp_path: Path) -> None:
    work = charts_of(record_program(tmp_path / "run.mscope", calls=True))["work"]
    assert work.title == "Driver calls in each step"
    assert work.figure is not None
    drawn = {trace.name: trace.y.tolist() for trace in work.figure.data}
    assert drawn == {"driver allocations": [1, 1, 1], "driver frees": [0, 0, 0]}


def test_driver_calls_that_nobody_recorded_are_absent_with_their_reason(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.mscope")
    recorder.fact("policy", {"policy": "past", "allocator": "torch"})
    recorder.emit(Kind.UPLOAD, 0, 0, bytes=MIB, value=7)
    recorder.emit(Kind.STEP, 0, duration_ns=1000)
    recorder.close()
    work = charts_of(tmp_path / "run.mscope")["work"]
    assert work.title == "Uploads in each step"
    assert work.figure is not None
    assert [trace.name for trace in work.figure.data] == ["layers uploaded"]
    assert "Driver calls are not drawn: no driver call is recorded." in work.note


def test_a_window_keeps_all_its_charts(tmp_path: Path) -> None:
    charts = charts_of(record_run(tmp_path / "run.mscope"))
    assert list(charts) == ["memory", "residency", "work", "durations"]
    assert charts["work"].title == "Uploads and driver calls in each step"


def test_each_device_has_its_own_line(tmp_path: Path) -> None:
    memory = charts_of(record_program(tmp_path / "run.mscope", devices=2))["memory"]
    assert memory.title == "Memory over time: 2 GPUs"
    assert memory.figure is not None
    drawn = {trace.name: trace for trace in memory.figure.data}
    assert drawn["torch allocated, device 0"].y.tolist() == [100] * 3
    assert drawn["torch allocated, device 1"].y.tolist() == [50] * 3
    looks = [drawn[f"torch allocated, device {device}"].line.color for device in (0, 1)]
    assert looks[0] != looks[1]
    assert drawn["torch reserved, device 1"].line.color == looks[1]


def test_more_lines_than_can_be_told_apart_are_named_not_drawn(tmp_path: Path) -> None:
    memory = charts_of(record_program(tmp_path / "run.mscope", devices=8))["memory"]
    assert memory.figure is not None
    names = [trace.name for trace in memory.figure.data if "device" in trace.name]
    assert names == [f"torch allocated, device {device}" for device in range(8)]
    assert "because there are too many devices: torch reserved." in memory.note


def test_one_device_is_not_numbered(tmp_path: Path) -> None:
    memory = charts_of(record_program(tmp_path / "run.mscope"))["memory"]
    assert memory.title == "Memory over time: GPU"
    assert memory.figure is not None
    assert "torch allocated" in [trace.name for trace in memory.figure.data]


def test_seconds_are_not_drawn_as_steps(tmp_path: Path) -> None:
    durations = charts_of(record_seconds(tmp_path / "run.mscope"))["durations"]
    assert durations.figure is None
    assert durations.note == "Not drawn: the program shows no steps, so each second counts as one."


def test_steps_of_the_program_are_drawn_without_the_seconds_before(tmp_path: Path) -> None:
    durations = charts_of(record_seconds(tmp_path / "run.mscope", steps=4))["durations"]
    assert durations.figure is not None
    assert durations.figure.data[0].y.tolist() == [1] * 4
    (shaded,) = durations.figure.layout.shapes
    assert (shaded.x0, shaded.x1) == (-0.5, 0.5)
    assert "3 steps before the program's own are ignored." in durations.note


def test_driver_calls_of_a_program_without_steps_are_drawn_by_the_second(tmp_path: Path) -> None:
    work = charts_of(record_seconds(tmp_path / "run.mscope", calls=True))["work"]
    assert work.title == "Driver calls in each second"
    assert work.figure is not None
    assert work.figure.layout.xaxis.title.text == "second"
    assert work.note == "The shaded seconds are warm-up and do not count in any metric."
