"""Heatmap of layers by steps: which layers had to be uploaded."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from memscope.analysis.summary.residency_map import ResidencyMap
from memscope_dashboards.html.chart import Chart, style

TITLE = "Which layers had to be uploaded"


def draw_residency(residency_map: ResidencyMap, word: str = "step") -> Chart:
    """One cell per layer and step. If there are many steps, a column covers several.

    ``word``: what to call a step.
    """
    layers, columns = residency_map.shares.shape
    if not layers or not columns:
        return Chart("residency", TITLE, "Nothing to draw: no layer uploads were recorded.")
    width = residency_map.width
    figure = go.Figure(_cells(residency_map, word))
    style(figure, height=min(max(7 * layers, 190), 520) + 80, hovermode="closest")
    figure.update_layout(margin_t=28)
    figure.update_xaxes(title_text=word, showgrid=False)
    figure.update_yaxes(title_text="layer", autorange="reversed", showgrid=False)
    return Chart("residency", TITLE, _note(width, word), figure, _legend(width, word))


def _cells(residency_map: ResidencyMap, word: str) -> go.Heatmap:
    width = residency_map.width
    where = f"{word} %{{x}}" if width == 1 else f"{width} {word}s around %{{x:.0f}}"
    what = "uploaded: %{z:.0f}" if width == 1 else "uploaded in %{z:.0%} of them"
    return go.Heatmap(
        z=residency_map.shares.astype(np.float32),
        x=(residency_map.first_step + residency_map.last_step) / 2,
        colorscale=[[0, "var(--map-held)"], [1, "var(--map-uploaded)"]],
        zmin=0,
        zmax=1,
        xgap=1 if len(residency_map) <= 80 else 0,
        ygap=1,
        showscale=False,
        hoverongaps=False,
        hovertemplate=f"layer %{{y}}, {where}<br>{what}<extra></extra>",
    )


def _note(width: int, word: str) -> str:
    words = f"Layers run from top to bottom, {word}s from left to right. lm_head is not shown."
    if width > 1:
        words += f" Each column covers {width:,} {word}s. "
        words += f"The darker a cell, the more of these {word}s uploaded the layer."
    return words


def _legend(width: int, word: str) -> tuple[tuple[str, str], ...]:
    steps = f"in this {word}" if width == 1 else f"in every {word} of the column"
    return (
        ("--map-held", "already on the device"),
        ("--map-uploaded", f"had to be uploaded {steps}"),
    )
