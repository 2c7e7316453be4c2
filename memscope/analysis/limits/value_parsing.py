"""Parsing the value of a limit into the unit of its metric."""

from __future__ import annotations

import math
from collections.abc import Mapping

from memscope.errors import MemscopeError
from memscope.units import BYTE_UNITS, TIME_UNITS_S, refuse_bits, split_quantity

TIME_UNITS = ("ms", "s")
_PER_SECOND = {"/step": "/s", "a step": "a second"}  # how units of growth end
_EXAMPLES = {"ratio": "0.95", "ms": "40 ms", "s": "60 s"}


def parse_value(text: str, name: str, unit: str | None) -> tuple[float, str]:
    """The value in ``text`` and its unit. ``unit`` is that of the metric ``name``, if known.

    A number without a unit is in the metric's unit. Growth is per step even if the text does not
    say so; a limit on a value per step may be written per second. Raises MemscopeError.
    """
    if unit is None and name.endswith(".growth"):
        unit = _growth_unit(text)
    plain = unit
    for step, second in _PER_SECOND.items():
        if unit is not None and unit.endswith(step):
            plain = unit.removesuffix(step)
            unit = f"{plain}{second if text.endswith(second) else step}"
            text = text.removesuffix(second).removesuffix(step)
    number, written = _split(text)
    unit = _written_unit(written) if unit is None else unit
    factors = _factors(unit if plain is None else plain)
    if math.isnan(number) or written.upper() not in factors:
        raise MemscopeError(
            f"{name} is measured in {unit or 'plain numbers'}, not in {written!r}.",
            f"Write it like '{name} <= {example_value(unit)}'.",
        )
    value = number * factors[written.upper()]
    if math.isinf(value):
        raise MemscopeError(f"{text!r} is too large a number.", "Write a finite number.")
    return value, unit


def is_size(unit: str) -> bool:
    """Whether the unit is bytes, or bytes per step or second."""
    return unit.startswith("bytes")


def a_step(unit: str) -> str:
    """The unit of growth per step of a value in ``unit``."""
    return f"{unit}/step" if unit else "a step"


def per_second(unit: str) -> str:
    """The unit with "per step" replaced by "per second". Other units are unchanged."""
    return _with_end(unit, _PER_SECOND)


def per_step(unit: str) -> str:
    """The unit with "per second" replaced by "per step". Other units are unchanged."""
    return _with_end(unit, {second: step for step, second in _PER_SECOND.items()})


def is_per_second(unit: str) -> bool:
    """Whether the unit is per second."""
    return unit.endswith(tuple(_PER_SECOND.values()))


def write_value(value: float, unit: str) -> str:
    """``value`` with its unit, so that parsing gives exactly the same value."""
    is_whole = float(value).is_integer() and abs(value) < 1 << 53
    return f"{int(value) if is_whole else repr(float(value))} {unit}".strip()


def example_value(unit: str | None) -> str:
    """An example of a value in ``unit``."""
    unit = unit or ""
    if unit.endswith(tuple(_PER_SECOND)) or is_per_second(unit):
        return "1 KiB" if is_size(unit) else "0.1"
    return _EXAMPLES.get(unit, "2 GiB" if is_size(unit) else "4")


def _with_end(unit: str, ends: Mapping[str, str]) -> str:
    """``unit`` with its ending replaced, if it is one of ``ends``."""
    for end, other in ends.items():
        if unit.endswith(end):
            return f"{unit.removesuffix(end)}{other}"
    return unit


def _split(text: str) -> tuple[float, str]:
    """Number and unit. Text without a number gives nan. Raises MemscopeError for bits."""
    try:
        number, written = split_quantity(text)
    except MemscopeError:
        return math.nan, text or "nothing"
    refuse_bits(text, written)
    return number, written


def _growth_unit(text: str) -> str:
    """The unit per step of a written growth, with or without "/step"."""
    for ends in _PER_SECOND.items():
        for end in ends:
            text = text.removesuffix(end)
    return a_step(_written_unit(_split(text)[1]))


def _written_unit(written: str) -> str:
    """The metrics' unit for a written unit. An unknown unit is returned unchanged.

    K, M, G and T alone may count anything ("345 K" tokens). They are sizes only in bytes.
    """
    if written.upper() in BYTE_UNITS and written.upper() not in ("K", "M", "G", "T"):
        return "bytes"
    if written.upper() in TIME_UNITS_S:
        return "s"
    return "ratio" if written == "%" else written


def _factors(unit: str) -> dict[str, float]:
    """Upper-case units that may be written, and their size in ``unit``."""
    plain = {"": 1.0, unit.upper(): 1.0}
    if is_size(unit):
        return plain | {"BYTES": 1.0} | BYTE_UNITS
    if unit in TIME_UNITS:
        return plain | {
            name: value / TIME_UNITS_S[unit.upper()] for name, value in TIME_UNITS_S.items()
        }
    return plain | ({"%": 0.01} if unit == "ratio" else {})
