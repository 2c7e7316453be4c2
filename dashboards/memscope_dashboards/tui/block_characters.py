"""Area charts and bars in block characters. Independent of Textual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memscope_dashboards.tui.palette import Role
from memscope_dashboards.tui.styled_line import Span

Array = npt.NDArray[Any]

EIGHTHS = " ▁▂▃▄▅▆▇█"


def columns(t_ns: Array, values: Array, span_ns: tuple[int, int], width: int) -> Array:
    """The largest of ``values`` in each of ``width`` equal stretches of ``span_ns``.

    A stretch without a value repeats the previous one. Stretches before the first value are NaN.
    """
    tops = np.full(width, np.nan)
    if not len(values) or width < 1:
        return tops
    start, end = span_ns
    cells = ((t_ns - start) * (width / max(end - start, 1))).astype(np.int64).clip(0, width - 1)
    firsts = np.flatnonzero(np.diff(cells, prepend=-1))
    tops[cells[firsts]] = np.maximum.reduceat(values.astype(np.float64), firsts)
    known = np.maximum.accumulate(np.where(np.isnan(tops), -1, np.arange(width)))
    return np.where(known >= 0, tops[known], np.nan)


def area(tops: Array, ceiling: float, height: int) -> list[str]:
    """``tops`` as ``height`` rows of block characters, from the top; ``ceiling`` fills all rows."""
    scale = height * 8 / ceiling if ceiling > 0 else 0.0
    known = np.nan_to_num(tops)
    eighths = np.rint(known * scale).clip(0, height * 8)
    levels = np.where(known > 0, np.maximum(eighths, 1), 0).astype(np.int64)
    rows = [(levels - row * 8).clip(0, 8).tolist() for row in range(height - 1, -1, -1)]
    return ["".join(EIGHTHS[level] for level in row) for row in rows]


def bar(parts: Sequence[tuple[float, str, Role]], ceiling: float, width: int) -> list[Span]:
    """``parts`` (size, glyph, role) side by side. ``ceiling`` fills all ``width`` cells."""
    spans, done, total = [], 0, 0.0
    for size, glyph, role in parts:
        total += max(size, 0.0)
        end = min(round(total / ceiling * width), width) if ceiling > 0 else 0
        spans.append((glyph * (end - done), role))
        done = max(end, done)
    return [span for span in spans if span[0]]
