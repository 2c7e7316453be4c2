"""The processes of a run side by side: a table and the memory of all on one axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from memscope.analysis.summary.alignment import STEP, Alignment, Curve
from memscope.analysis.summary.run_summary import Process, RunSummary
from memscope.units import format_bytes
from memscope_dashboards.html.chart import ByteAxis, Chart, style
from memscope_dashboards.html.markup import escape

COLOURS = ("resident", "flight", "kv", "host", "limit", "muted", "ink", "pass")
DASHES = ("solid", "dash", "dot", "dashdot")
MAX_CURVES = 24
READINGS = {"nvml.process_bytes": "by NVML", "torch.reserved_bytes": "reserved by torch"}
HEADINGS = (
    "pid",
    "rank",
    "peak, all GPUs",
    "peak host RSS",
    "started",
    "steps",
    "state",
    "command",
)


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run with several processes or devices. The rest of the page is about ``shown``."""

    run: RunSummary
    alignment: Alignment
    shown: Process

    @property
    def is_needed(self) -> bool:
        """Whether the run has more than one process or device."""
        return len(self.run.processes) > 1 or len(self.alignment.device_curves) > 1


def render_overview(overview: RunOverview) -> str:
    """Heading, summary sentence and table of processes. The chart follows."""
    run = overview.run
    head = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    rows = "".join(_row(process, process is overview.shown) for process in run.processes)
    count = len(run.processes)
    heading = f"A run of {count} processes" if count > 1 else "One process on several devices"
    sentence = f"<p>{escape(run.sentence)}</p>" if run.sentence else ""
    below = (
        f"<p>The rest of this page is about {escape(overview.shown.words)}.</p>"
        if count > 1
        else ""
    )
    measure = f'<p class="note">{escape(run.measure, limit=400)}</p>' if run.measure else ""
    return (
        f"<h2>{heading}</h2>{sentence}"
        '<table class="metrics processes">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"{measure}{below}"
    )


def _row(process: Process, is_shown: bool) -> str:
    summary = process.summary
    cells = (
        str(process.pid) + (" (shown)" if is_shown else ""),
        "" if process.rank is None else str(process.rank),
        process.device_words,
        _size(process.host_bytes),
        f"{process.offset_s:+.2f} s",
        f"{summary.own_steps:,}",
        summary.state.name,
        process.command,
    )
    named = zip(HEADINGS, cells, strict=True)
    marked = (f'<td data-name="{name}">{escape(cell, limit=120)}</td>' for name, cell in named)
    return f"<tr>{''.join(marked)}</tr>"


def _size(size: int | None) -> str:
    return "not measured" if size is None else format_bytes(size)


def draw_overview(alignment: Alignment) -> Chart:
    """Device memory of all processes on one axis, and their host memory below it."""
    parts = [
        (curves, title)
        for curves, title in (
            (alignment.device_curves, f"devices, {READINGS.get(alignment.reading_name or '', '')}"),
            (alignment.host_curves, "host RSS"),
        )
        if curves
    ]
    title = "Memory of all processes"
    if not parts:
        return Chart("run", title, "Nothing to draw: no process has memory readings.")
    heights = [0.68, 0.32][: len(parts)] if len(parts) > 1 else [1.0]
    figure = make_subplots(
        rows=len(parts), cols=1, shared_xaxes=True, row_heights=heights, vertical_spacing=0.07
    )
    style(figure, height=200 + 170 * len(parts), hovermode="closest")
    looks = _looks(alignment)
    for row, (curves, words) in enumerate(parts, 1):
        _draw(figure, row, _highest(curves), words, looks)
    axis = "finished steps" if alignment.by == STEP else "seconds since the first process started"
    figure.update_xaxes(title_text=axis, row=len(parts), col=1)
    left = sum(max(len(curves) - MAX_CURVES, 0) for curves, _ in parts)
    note = f" Not drawn: {left} lower curves." if left else ""
    return Chart("run", title, alignment.sentence + note, figure)


def _highest(curves: Sequence[Curve]) -> list[Curve]:
    """The ``MAX_CURVES`` curves with the highest peaks, in their order."""
    ranked = sorted(curves, key=lambda curve: -float(curve.bytes.max()))
    kept = {id(curve) for curve in ranked[:MAX_CURVES]}
    return [curve for curve in curves if id(curve) in kept]


def _draw(
    figure: go.Figure,
    row: int,
    curves: Sequence[Curve],
    words: str,
    looks: dict[tuple[str, int], dict[str, str]],
) -> None:
    axis = ByteAxis.up_to(max(float(curve.bytes.max()) for curve in curves))
    for curve in curves:
        name = _name(curve)
        trace = go.Scatter(
            x=curve.at,
            y=curve.bytes / axis.factor,
            name=name,
            mode="lines" if len(curve.at) > 1 else "markers",
            line={"width": 1.8, "shape": "hv"} | looks[curve.process.path, max(curve.device, 0)],
            showlegend=row == 1,
            hovertemplate=f"{name}: %{{y:,.2f}} {axis.unit}<extra></extra>",
        )
        figure.add_trace(trace, row=row, col=1)
    title = f"{words}, {axis.unit}"
    figure.update_yaxes(title_text=title, rangemode="tozero", nticks=5, row=row, col=1)


def _looks(alignment: Alignment) -> dict[tuple[str, int], dict[str, str]]:
    """Line styles: colour by process, dash by device, the same in both charts."""
    paths = list(dict.fromkeys(curve.process.path for curve in _all_curves(alignment)))
    return {
        (curve.process.path, max(curve.device, 0)): {
            "color": f"var(--{COLOURS[paths.index(curve.process.path) % len(COLOURS)]})",
            "dash": DASHES[max(curve.device, 0) % len(DASHES)],
        }
        for curve in _all_curves(alignment)
    }


def _all_curves(alignment: Alignment) -> Iterator[Curve]:
    yield from alignment.device_curves
    yield from alignment.host_curves


def _name(curve: Curve) -> str:
    place = f", device {curve.device}" if curve.device >= 0 else ""
    return f"{curve.process.words}{place}"
