"""One chart of the page: figure, title and note, and the style that all charts share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from memscope.analysis.timeline.series import Series, SeriesBuilder
from memscope.units import BYTE_UNITS

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif'


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure with its title and a note on how to read it.

    If ``figure`` is None, ``note`` says why. ``legend`` holds pairs of CSS variable and text.
    """

    key: str
    title: str
    note: str
    figure: go.Figure | None = None
    legend: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ByteAxis:
    """The unit of an axis that shows bytes."""

    unit: str
    factor: int

    @classmethod
    def up_to(cls, largest: float) -> ByteAxis:
        """The largest 1024-based unit that is not larger than ``largest`` bytes."""
        for unit in ("TiB", "GiB", "MiB", "KiB"):
            if largest >= BYTE_UNITS[unit.upper()]:
                return cls(unit, BYTE_UNITS[unit.upper()])
        return cls("B", 1)


def thin(steps: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> Series:
    """``values`` by step number, downsampled until the series is short enough to draw."""
    builder = SeriesBuilder()
    builder.add(steps, values.astype(np.float64))
    return builder.series()


def style(
    figure: go.Figure, *, height: int, hovermode: str = "x unified", **layout: Any
) -> go.Figure:
    """Apply the page's style. Colours are CSS variables that page.js resolves when it draws."""
    figure.update_layout(
        template="none",
        height=height,
        hovermode=hovermode,
        margin={"l": 54, "r": 8, "t": 46, "b": 44},
        font={"family": FONT, "size": 12.5, "color": "var(--muted)"},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={
            "bgcolor": "var(--card)",
            "bordercolor": "var(--line)",
            "font": {"family": FONT, "size": 12.5, "color": "var(--ink)"},
        },
        legend={
            "orientation": "h",
            "font": {"size": 12},
            "traceorder": "normal",
            "x": 0,
            "y": 1.0,
            "xanchor": "left",
            "yanchor": "bottom",
        },
        modebar={
            "bgcolor": "rgba(0,0,0,0)",
            "color": "var(--muted)",
            "activecolor": "var(--ink)",
        },
        **layout,
    )
    axis = {
        "gridcolor": "var(--grid)",
        "linecolor": "var(--line)",
        "tickcolor": "var(--line)",
        "zeroline": False,
        "title": {"standoff": 8, "font": {"size": 12.5}},
    }
    figure.update_xaxes(**axis, showline=True, ticks="outside", ticklen=4)
    figure.update_yaxes(**axis)
    return figure
