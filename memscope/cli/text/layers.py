"""Memory of a watched model's layers, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memscope.cli.text.columns import align
from memscope.text import clean
from memscope.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memscope.analysis.timeline.layers import LayerMemory

SHOWN = 8


def layer_lines(layers: Sequence[LayerMemory]) -> list[str]:
    """The layers that allocate most, in the model's order. "≤" marks an upper bound."""
    most = sorted(layers, key=lambda layer: -abs(layer.allocated_delta))[:SHOWN]
    rows = [("", "allocated", "reserved", "peak while it ran", "read")]
    rows += [_row(layer) for layer in sorted(most, key=lambda layer: layer.layer)]
    of = f", {SHOWN} of {len(layers)}" if len(layers) > SHOWN else ""
    return [f"layers (mean change from start to end{of})", *align(rows)] if layers else []


def _row(layer: LayerMemory) -> tuple[str, str, str, str, str]:
    bound = "≤ " if layer.is_upper_bound else ""
    return (
        clean(layer.name, 60),
        _signed(layer.allocated_delta),
        _signed(layer.reserved_delta),
        f"{bound}{format_bytes(layer.peak_bytes)}",
        f"{layer.readings:,} times",
    )


def _signed(size: float) -> str:
    return f"{'+' if size > 0 else ''}{format_bytes(size)}"
