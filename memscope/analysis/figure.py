"""A figure as measured, or why it was not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a figure has no value: nothing measured it, or it does not apply to this run."""

    reason: str
    is_applicable: bool = True


Measured = float | Missing


@dataclass(frozen=True, slots=True)
class Figure:
    """``value`` in ``unit``; None where it has none, and ``reason`` says why.

    A figure that does not apply (``is_applicable`` False) is no failure to measure it.
    """

    name: str
    value: float | None
    unit: str
    reason: str | None = None
    is_applicable: bool = True


def make_figure(name: str, unit: str, measured: Measured) -> Figure:
    """The figure of what was measured, or of why not."""
    if isinstance(measured, Missing):
        return Figure(name, None, unit, measured.reason, measured.is_applicable)
    return Figure(name, float(measured), unit)
