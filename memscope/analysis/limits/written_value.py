"""The value of a limit as people write it, in the unit of what it is a limit on."""

from __future__ import annotations

import math
from collections.abc import Mapping

from memscope.errors import MemscopeError
from memscope.units import BYTE_UNITS, TIME_UNITS_S, refuse_bits, split_quantity

TIME_UNITS = ("ms", "s")
_PER_SECOND = {"/step": "/s", "a step": "a second"}  # how units of growth end
_EXAMPLES = {"ratio": "0.95", "ms": "40 ms", "s": "60 s"}


def parse_value(text: str, name: str, unit: str | None) -> tuple[float, str]:
    """``text`` in ``unit``, that of ``name``; where None, in the unit that is written.

    A bare number is in the unit of ``name``. Growth is a step, whether or not that is written; what
    is measured a step may be written a second. Raises MemscopeError.
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
        raise MemscopeError(f"{text!r} is no number that can be compared.", "Write a finite one.")
    return value, unit


def is_size(unit: str) -> bool:
    """Whether it is of bytes, or of what they grow by."""
    return unit.startswith("bytes")


def a_step(unit: str) -> str:
    """The unit in which what is measured in ``unit`` grows."""
    return f"{unit}/step" if unit else "a step"


def per_second(unit: str) -> str:
    """The unit of what is measured a step, measured a second instead; others as they are."""
    return _with_end(unit, _PER_SECOND)


def per_step(unit: str) -> str:
    """The unit of what is measured a second, measured a step instead; others as they are."""
    return _with_end(unit, {second: step for step, second in _PER_SECOND.items()})


def is_per_second(unit: str) -> bool:
    """Whether it is of what is measured a second."""
    return unit.endswith(tuple(_PER_SECOND.values()))


def write_value(value: float, unit: str) -> str:
    """``value`` with its unit spelled out; read back, it is the same."""
    is_whole = float(value).is_integer() and abs(value) < 1 << 53
    return f"{int(value) if is_whole else repr(float(value))} {unit}".strip()


def example_value(unit: str | None) -> str:
    """A value that may be written in ``unit``."""
    unit = unit or ""
    if unit.endswith(tuple(_PER_SECOND)) or is_per_second(unit):
        return "1 KiB" if is_size(unit) else "0.1"
    return _EXAMPLES.get(unit, "2 GiB" if is_size(unit) else "4")


def _with_end(unit: str, ends: Mapping[str, str]) -> str:
    """``unit`` with the other end, where it has one of ``ends``."""
    for end, other in ends.items():
        if unit.endswith(end):
            return f"{unit.removesuffix(end)}{other}"
    return unit


def _split(text: str) -> tuple[float, str]:
    """Number and unit; of what is no number nan and all of it. Raises MemscopeError for bits."""
    try:
        number, written = split_quantity(text)
    except MemscopeError:
        return math.nan, text or "nothing"
    refuse_bits(text, written)
    return number, written


def _growth_unit(text: str) -> str:
    """The unit a step that growth is written in, which may say so or not."""
    for ends in _PER_SECOND.items():
        for end in ends:
            text = text.removesuffix(end)
    return a_step(_written_unit(_split(text)[1]))


def _written_unit(written: str) -> str:
    """The unit of metrics that a written one belongs to; of an unknown one itself."""
    if written.upper() in BYTE_UNITS:
        return "bytes"
    if written.upper() in TIME_UNITS_S:
        return "s"
    return "ratio" if written == "%" else written


def _factors(unit: str) -> dict[str, float]:
    """What a unit that may be written is worth in ``unit``; upper case."""
    plain = {"": 1.0, unit.upper(): 1.0}
    if is_size(unit):
        return plain | {"BYTES": 1.0} | BYTE_UNITS
    if unit in TIME_UNITS:
        return plain | {
            name: value / TIME_UNITS_S[unit.upper()] for name, value in TIME_UNITS_S.items()
        }
    return plain | ({"%": 0.01} if unit == "ratio" else {})
