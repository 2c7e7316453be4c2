"""The allocator's map: one row per segment, blocks drawn to scale."""

from __future__ import annotations

from collections.abc import Iterator

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from memscope.analysis.memory_map.block_picture import BlockPicture, Panel, PictureCell, PictureRow
from memscope.units import format_bytes
from memscope_dashboards.html.chart import ByteAxis, Chart, style
from memscope_dashboards.html.markup import escape

TITLE = "Allocator map: segments and blocks"
# State → colour, legend text
STATES = {
    "allocated": ("resident", "allocated"),
    "pending": ("flight", "freed, another stream may still use it"),
    "free": ("map-held", "free"),
    "mixed": ("map-mixed", "blocks too small to draw, some of them free"),
}
ROW_HEIGHT, PANEL_HEIGHT, ROOM = 19, 62, 46
OWNER_CHARS = 120


def draw_blocks(picture: BlockPicture) -> Chart:
    """One row per kind of segment, one bar per block. Each panel has its own scale."""
    heights = [ROW_HEIGHT * max(len(panel.rows), 2) for panel in picture.panels]
    gaps = PANEL_HEIGHT * (len(heights) - 1)
    figure = make_subplots(
        rows=len(heights),
        cols=1,
        row_heights=heights,
        vertical_spacing=PANEL_HEIGHT / (sum(heights) + gaps) if gaps else 0,
    )
    style(
        figure,
        height=sum(heights) + gaps + PANEL_HEIGHT + ROOM,
        hovermode="closest",
        barmode="overlay",
    )
    shown: set[str] = set()
    for number, panel in enumerate(picture.panels, 1):
        _draw_panel(figure, panel, number, shown)
    figure.update_yaxes(automargin=True, showgrid=False, ticks="")
    figure.update_xaxes(rangemode="tozero", showgrid=False)
    return Chart("blocks", TITLE, _note(picture), figure)


def _draw_panel(figure: go.Figure, panel: Panel, number: int, shown: set[str]) -> None:
    """``shown``: states that the legend already names."""
    axis = ByteAxis.up_to(panel.rows[0].bytes)
    for state in STATES:
        for trace in _bars(panel, state, axis):
            figure.add_trace(trace.update(showlegend=state not in shown), row=number, col=1)
            shown.add(state)
    figure.update_xaxes(
        title_text=f"{axis.unit}; blocks below {format_bytes(panel.resolution_bytes)} share a bar",
        row=number,
        col=1,
    )
    figure.update_yaxes(
        tickvals=list(range(len(panel.rows))),
        ticktext=[_name(row) for row in panel.rows],
        range=[max(len(panel.rows), 2) - 0.5, -0.5],
        row=number,
        col=1,
    )


def _bars(panel: Panel, state: str, axis: ByteAxis) -> Iterator[go.Bar]:
    colour, words = STATES[state]
    found = [
        (number, row, cell)
        for number, row in enumerate(panel.rows)
        for cell in row.cells
        if cell.state == state
    ]
    if not found:
        return
    yield go.Bar(
        y=[number for number, _, _ in found],
        base=[cell.offset / axis.factor for _, _, cell in found],
        x=[_drawn_bytes(row, cell, panel) / axis.factor for _, row, cell in found],
        width=0.8,
        hovertext=[_about(row, cell) for _, row, cell in found],
        name=words,
        legendgroup=state,
        orientation="h",
        marker={"color": f"var(--{colour})", "line": {"width": 0.5, "color": "var(--card)"}},
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _drawn_bytes(row: PictureRow, cell: PictureCell, panel: Panel) -> int:
    """Width of the bar in bytes. A segment too small to see gets the smallest visible width."""
    return panel.resolution_bytes if row.bytes < panel.resolution_bytes else cell.bytes


def _name(row: PictureRow) -> str:
    """Size and number of a row's segments, then pool, stream and type."""
    marks = [row.pool, row.stream, "expandable" if row.is_expandable else ""]
    count = f" × {row.segments:,}" if row.segments > 1 else ""
    return escape(" · ".join([f"{format_bytes(row.bytes)}{count}", *filter(None, marks)]))


def _about(row: PictureRow, cell: PictureCell) -> str:
    """Hover text of a cell."""
    sizes = {
        "allocated": cell.allocated_bytes,
        "pending": cell.pending_bytes,
        "free": cell.free_bytes,
    }
    held = [f"{format_bytes(size)} {state}" for state, size in sizes.items() if size]
    lines = [f"<b>{', '.join(held)}</b>"]
    if cell.blocks > row.segments:
        lines.append(f"{cell.blocks:,} blocks")
    if row.segments > 1:
        lines.append(f"in {row.segments:,} segments in total")
    lines.append(f"at {format_bytes(cell.offset)} of {format_bytes(row.bytes)}")
    if cell.owner:
        lines.append(escape(cell.owner, limit=OWNER_CHARS))
    return "<br>".join(lines)


def _note(picture: BlockPicture) -> str:
    when = "" if picture.t_ns is None else f" at {picture.t_ns / 1e9:,.3f} s, when memory ran out"
    words = [
        f"Device {picture.device}{when}: {_segments(picture.segments, picture.reserved_bytes)}. "
        "Segments that look the same share a row. A request needs one free block that is large "
        "enough, in its own pool and stream."
    ]
    if picture.undrawn_segments:
        hidden = _segments(picture.undrawn_segments, picture.undrawn_bytes)
        words.append(f"Not drawn: {hidden}.")
    if picture.missing_segments:
        words.append(f"Not recorded: {_segments(picture.missing_segments, picture.missing_bytes)}.")
    return " ".join(words)


def _segments(count: int, size: int) -> str:
    return f"{count:,} segment{'' if count == 1 else 's'}, {format_bytes(size)} in total"
