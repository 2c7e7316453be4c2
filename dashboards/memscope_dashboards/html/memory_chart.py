"""The memory chart: device memory, unused memory and host memory over time."""

from __future__ import annotations

from collections.abc import Iterator

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from memscope.analysis.metrics.fragmentation_series import UnusedMemory, unused_memory
from memscope.analysis.metrics.memory import find_device
from memscope.analysis.timeline.facts import Device
from memscope.analysis.timeline.series import Series
from memscope.analysis.timeline.timeline import Timeline
from memscope.units import format_bytes
from memscope_dashboards.html.chart import ByteAxis, Chart, style
from memscope_dashboards.html.device_memory import (
    Band,
    DeviceMemory,
    ReadingLine,
    read_device_memory,
)
from memscope_dashboards.html.facts import device_words
from memscope_dashboards.html.markup import escape
from memscope_dashboards.html.step_charts import step_word

PROCESS_READING = "host.rss_bytes"
MAX_MARKS = 12
HEIGHTS = (300, 110, 105)  # rows of the device, unused memory and the process, in pixels
ROOM = 75
LEGEND_ROW, LEGEND_COLUMNS = 20, 5


def draw_memory(timeline: Timeline) -> Chart:
    """The memory chart: one row each for device memory, unused memory and host memory.

    A row without data is left out.
    """
    device = find_device(timeline)
    memory = read_device_memory(timeline, device)
    unused = unused_memory(timeline)
    process = timeline.series.get(PROCESS_READING)
    title = f"Memory over time: {_place(device, memory)}"
    heights = [
        height for height, part in zip(HEIGHTS, (memory, unused, process), strict=True) if part
    ]
    if not heights:
        return Chart("memory", title, "Nothing to draw: no memory readings were recorded.")
    figure = make_subplots(
        rows=len(heights), cols=1, shared_xaxes=True, row_heights=heights, vertical_spacing=0.06
    )
    room = LEGEND_ROW * (len(memory.lines) // LEGEND_COLUMNS)
    style(figure, height=sum(heights) + ROOM + room)
    figure.update_layout(margin_t=figure.layout.margin.t + room)
    if memory:
        _draw_device(figure, memory, timeline)
    if unused:
        _draw_unused(figure, unused, row=2 if memory else 1)
    if process:
        _draw_process(figure, process, row=len(heights))
    _add_moments(figure, timeline)
    figure.update_xaxes(title_text="seconds since the recording started", row=len(heights), col=1)
    return Chart("memory", title, _note(device, memory, unused, step_word(timeline)), figure)


def _place(device: Device | None, memory: DeviceMemory) -> str:
    words = device_words(device)
    return f"{memory.devices} {words}s" if memory.devices > 1 and words == "GPU" else words


def _draw_device(figure: go.Figure, memory: DeviceMemory, timeline: Timeline) -> None:
    top = max(memory.peak_bytes, memory.limit_bytes or 0)
    axis = ByteAxis.up_to(top)
    figure.add_traces([_band(band, axis) for band in memory.bands])
    figure.add_traces([_line(line, axis) for line in memory.lines])
    if memory.limit_bytes:
        figure.add_trace(_limit(memory.limit_bytes, timeline, axis))
    figure.update_yaxes(
        title_text=f"device, {axis.unit}", range=[0, 1.14 * top / axis.factor], row=1, col=1
    )


def _draw_unused(figure: go.Figure, unused: UnusedMemory, *, row: int) -> None:
    axis = ByteAxis.up_to(unused.unused.peak)
    areas = [("reserved, not allocated", "idle", unused.unused)]
    if unused.split is not None:
        areas.append(("in partly used segments", "flight", unused.split))
    for words, colour, series in areas:
        trace = _line(ReadingLine(words, colour, "solid", series), axis)
        figure.add_trace(trace.update(fill="tozeroy"), row=row, col=1)
    title = f"unused, {axis.unit}"
    figure.update_yaxes(title_text=title, rangemode="tozero", nticks=4, row=row, col=1)


def _draw_process(figure: go.Figure, series: Series, *, row: int) -> None:
    axis = ByteAxis.up_to(series.peak)
    line = ReadingLine("host RSS", "host", "solid", series)
    figure.add_trace(_line(line, axis), row=row, col=1)
    title = f"process, {axis.unit}"
    figure.update_yaxes(title_text=title, rangemode="tozero", nticks=4, row=row, col=1)


def _band(band: Band, axis: ByteAxis) -> go.Scatter:
    return go.Scatter(
        x=band.at_ns / 1e9,
        y=band.bytes / axis.factor,
        name=band.words,
        stackgroup="device",
        mode="lines",
        line={"width": 0, "shape": "hv", "color": f"var(--{band.colour})"},
        fillcolor=f"var(--{band.colour})",
        hovertemplate=f"%{{y:,.2f}} {axis.unit}",
    )


def _line(line: ReadingLine, axis: ByteAxis) -> go.Scatter:
    series = line.series
    return go.Scatter(
        x=series.t_ns / 1e9,
        y=series.maximum / axis.factor,
        name=line.words,
        mode="lines" if len(series) > 1 else "markers",
        line={"width": 1.8, "dash": line.dash, "shape": "hv", "color": f"var(--{line.colour})"},
        hovertemplate=f"%{{y:,.2f}} {axis.unit}",
    )


def _limit(limit_bytes: int, timeline: Timeline, axis: ByteAxis) -> go.Scatter:
    return go.Scatter(
        x=[0, timeline.last_ns / 1e9],
        y=[limit_bytes / axis.factor] * 2,
        name=f"limit, {format_bytes(limit_bytes)}",
        mode="lines",
        line={"width": 1.8, "dash": "longdash", "color": "var(--limit)"},
        hoverinfo="skip",
    )


def _add_moments(figure: go.Figure, timeline: Timeline) -> None:
    for t_ns, words, colour in _moments(timeline):
        figure.add_vline(
            x=t_ns / 1e9,
            row=1,
            col=1,
            line={"width": 1, "dash": "dot", "color": f"var(--{colour})"},
            annotation={
                "text": escape(words, limit=40),
                "font": {"size": 11.5, "color": f"var(--{colour})"},
                "bgcolor": "var(--card)",
                "borderpad": 2,
                "yanchor": "top",
            },
        )


def _moments(timeline: Timeline) -> Iterator[tuple[int, str, str]]:
    for mark in timeline.marks[:MAX_MARKS]:
        yield mark.t_ns, mark.name, "muted"
    for oom in timeline.ooms[:MAX_MARKS]:
        yield oom.t_ns, "out of memory", "limit"


def _note(
    device: Device | None, memory: DeviceMemory, unused: UnusedMemory | None, word: str
) -> str:
    words = []
    if memory.bands:
        words.append(
            f"The bands show device memory at the end of each {word}: weights ready for compute, "
            "uploads in flight, idle memory in the weight pool, and the KV cache."
        )
    if unused is not None:
        words.append(
            "Reserved, not allocated: memory that torch holds but does not use on device "
            f"{unused.device}. torch cannot give back the part in partly used segments. This is "
            "fragmentation."
        )
        if unused.reason:
            words.append(f"That part is not drawn: {unused.reason}.")
    if device is not None and device.is_host:
        words.append("This device is the machine's own memory. None of this is GPU memory.")
    if memory.devices > 1:
        words.append("Each colour is one device. The limit is that of the first device.")
    if memory.left_out:
        words.append(
            f"Not drawn, because there are too many devices: {', '.join(memory.left_out)}."
        )
    if memory and memory.usable_bytes and not memory.limit_bytes:
        words.append(f"The limit, {format_bytes(memory.usable_bytes)}, is far above the chart.")
    return " ".join(words)
