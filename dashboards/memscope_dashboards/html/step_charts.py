"""What each step cost: uploads, driver calls, time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from memscope.analysis.metrics.weight_pool import why_no_calls
from memscope.analysis.metrics.window_metrics import why_no_durations
from memscope.analysis.summary.program import has_window
from memscope.analysis.timeline.series import Series
from memscope.analysis.timeline.timeline import Steps, Timeline
from memscope.facts import Fact, RunKind
from memscope_dashboards.html.chart import Chart, style, thin

NO_STEP = "Nothing to draw: no step has ended in this recording."
UPLOADS, CALLS = "uploads", "driver calls"
TIME_TITLE = "How long each step took"
# Part → unit of its axis; step column, legend text, colour
BARS = {
    UPLOADS: ("layers", (("uploads", "layers uploaded", "resident"),)),
    CALLS: (
        "calls",
        (
            ("device_mallocs", "driver allocations", "flight"),
            ("device_frees", "driver frees", "idle"),
        ),
    ),
}


def draw_work(timeline: Timeline) -> Iterator[Chart]:
    """The chart of uploads and driver calls per step; none if the program has neither."""
    missing = why_no_calls(timeline)
    parts = [UPLOADS] if has_window(timeline) else []
    parts += [] if missing else [CALLS]
    if not parts:
        return
    title = f"{' and '.join(parts).capitalize()} in each {step_word(timeline)}"
    steps = drawn_steps(timeline)
    if not len(steps):
        yield Chart("work", title, NO_STEP)
        return
    note = f" Driver calls are not drawn: {missing.reason}." if missing else ""
    yield Chart("work", title, _note(timeline, steps) + note, _draw_parts(timeline, steps, parts))


def _draw_parts(timeline: Timeline, steps: Steps, parts: Sequence[str]) -> go.Figure:
    figure = make_subplots(rows=len(parts), cols=1, shared_xaxes=True, vertical_spacing=0.09)
    height = 190 * len(parts) + (0 if len(parts) > 1 else 60)
    style(figure, height=height, barmode="stack", bargap=_gap(_durations(steps)))
    for row, part in enumerate(parts, 1):
        unit, bars = BARS[part]
        for column, words, colour in bars:
            values = thin(steps.step, getattr(steps, column))
            figure.add_trace(_bars(values, words, colour, unit), row=row, col=1)
        title = part if part == CALLS else unit
        figure.update_yaxes(rangemode="tozero", title_text=title, row=row, col=1)
        figure.update_yaxes(**_at_least(figure, row), row=row, col=1)
    figure.update_xaxes(title_text=step_word(timeline), row=len(parts), col=1)
    _shade_warmup(figure, timeline, steps)
    return figure


def draw_durations(timeline: Timeline) -> Chart:
    """The chart of step durations and, within them, the time spent waiting for uploads."""
    if missing := why_no_durations(timeline):
        return Chart("durations", TIME_TITLE, f"Not drawn: {missing.reason}.")
    steps = timeline.own_steps
    if not len(steps):
        return Chart("durations", TIME_TITLE, NO_STEP)
    durations = _durations(steps)
    figure = go.Figure(_time_bars(durations, "step", "resident"))
    if _has_waits(steps):
        waits = thin(steps.step, steps.wait_ns)
        figure.add_trace(_time_bars(waits, "waiting for uploads", "flight"))
    style(figure, height=280, barmode="overlay", bargap=_gap(durations))
    figure.update_yaxes(rangemode="tozero", title_text="ms")
    figure.update_xaxes(title_text="step")
    _shade_warmup(figure, timeline, steps)
    return Chart("durations", TIME_TITLE, _note(timeline, steps), figure)


def step_word(timeline: Timeline) -> str:
    """What to call a step: "second" if the program has no steps of its own."""
    return "second" if timeline.are_steps_seconds else "step"


def drawn_steps(timeline: Timeline) -> Steps:
    """The program's own steps, or one-second steps if it has none."""
    return timeline.steps if timeline.are_steps_seconds else timeline.own_steps


def _durations(steps: Steps) -> Series:
    return thin(steps.step, steps.duration_ns)


def _has_waits(steps: Steps) -> bool:
    return bool((steps.wait_ns > 0).any())


def _bars(series: Series, words: str, colour: str, unit: str) -> go.Bar:
    return go.Bar(
        x=series.t_ns,
        y=series.maximum.clip(0),
        name=words,
        marker={"color": f"var(--{colour})", "line": {"width": 0}},
        hovertemplate=f"%{{y:,.0f}} {unit}",
    )


def _time_bars(series: Series, words: str, colour: str) -> go.Bar:
    bars = _bars(series, words, colour, "ms")
    return bars.update(y=series.maximum.clip(0) / 1e6, hovertemplate="%{y:,.2f} ms")


def _gap(series: Series) -> float:
    return 0.25 if len(series) <= 150 else 0.0


def _at_least(figure: go.Figure, row: int) -> dict[str, object]:
    """A fixed axis range if every bar of ``row`` is zero."""
    traces = figure.select_traces(row=row, col=1)
    return {} if any(trace.y.any() for trace in traces) else {"range": [0, 1], "nticks": 3}


def _shade_warmup(figure: go.Figure, timeline: Timeline, steps: Steps) -> None:
    """``steps``: the steps that the chart draws."""
    count = len(steps) - len(timeline.measured_steps)
    if not count:
        return
    figure.add_vrect(
        x0=int(steps.step[0]) - 0.5,
        x1=int(steps.step[count - 1]) + 0.5,
        fillcolor="var(--muted)",
        opacity=0.13,
        line_width=0,
        layer="below",
    )


def _note(timeline: Timeline, steps: Steps) -> str:
    series, word = _durations(steps), step_word(timeline)
    words = "Step 0 is the prefill. " if timeline.facts.get(Fact.RUN_KIND) == RunKind.DECODE else ""
    if len(steps) > len(timeline.measured_steps):
        words += f"The shaded {word}s are warm-up and do not count in any metric. "
    if left := len(timeline.steps) - len(steps):
        words += f"{left:,} steps before the program's own are ignored. "
    if len(series) < series.readings:
        words += f"Each bar shows the highest of several {word}s."
    return words.strip()
