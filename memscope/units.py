"""Sizes and durations: parsing what people write, and formatting values for people.

GiB, MiB, G and M are 1024-based, as in docker and systemd; GB and MB are 1000-based. Upper and
lower case are the same, except that Gb and Mib are refused because they mean bits.
"""

from __future__ import annotations

import math
import re

from memscope.errors import MemscopeError

BYTE_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}
TIME_UNITS_S = {"NS": 1e-9, "US": 1e-6, "MS": 1e-3, "S": 1.0, "MIN": 60.0, "H": 3600.0}

SIZE_EXAMPLES = "96MiB, 8GiB, 60M or 1G (1024-based), or 8GB (1000-based)"

_SINGULAR = {"calls": "call", "entries": "entry", "errors": "error", "layers": "layer"}

_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z%]*)\s*")


def split_quantity(text: str) -> tuple[float, str]:
    """The number and the unit in ``text``: "2 GiB" gives 2.0 and "GiB". Raises MemscopeError."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise MemscopeError(f"{text!r} is not a number with a unit.", "Write it like 96MiB.")
    return float(match[1]), match[2]


def parse_bytes(text: str) -> int:
    """The bytes in ``text``, like "96MiB", "8 GB", "1G" or "1024". Raises MemscopeError."""
    number, unit = split_quantity(text)
    refuse_bits(text, unit)
    factor = BYTE_UNITS.get(unit.upper() or "B")
    if factor is None or number < 0 or math.isinf(number * factor):
        raise MemscopeError(f"{text!r} is not a size.", f"Write it like {SIZE_EXAMPLES}.")
    return round(number * factor)


def refuse_bits(text: str, unit: str) -> None:
    """Raises MemscopeError if ``unit``, the unit in ``text``, means bits ("Gb", "Mib")."""
    if unit.endswith("b") and unit != unit.lower() and unit.upper() in BYTE_UNITS:
        raise MemscopeError(
            f"{text!r} is in bits.", f"Write {unit[0]}B or {unit[0].upper()}iB for bytes."
        )


def format_bytes(count: float) -> str:
    """``count`` bytes for people: 1024-based, with three digits ("71.2 MiB")."""
    size = abs(count)
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{count / factor:,.{_decimals(size / factor)}f} {unit}"
    return f"{count:,.0f} B"


def torch_size(count: int) -> str:
    """Bytes as torch prints them ("10.84 GiB"), so that numbers can be found in its messages."""
    size = abs(count)
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count} bytes"


def format_seconds(seconds: float) -> str:
    """A duration for people ("12.3 ms", "4.0 s", "3 h 05 min")."""
    size = abs(seconds)
    if size >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    if size >= 60:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if size >= factor:
            return f"{seconds / factor:,.{_decimals(size / factor)}f} {unit}"
    return f"{seconds * 1e9:,.0f} ns" if seconds else "0 s"


def format_value(value: float, unit: str) -> str:
    """``value`` with its unit, as all views show a metric."""
    if unit == "bytes":
        return format_bytes(value)
    if unit in ("bytes/step", "bytes/s"):
        return f"{format_bytes(value)}{unit.removeprefix('bytes')}"
    if unit == "ms":
        return format_seconds(value / 1e3)
    if unit == "s":
        return format_seconds(value)
    if unit == "ratio":
        return f"{value:.1%}"
    if unit == "points":  # percentage points: the change of a ratio
        return f"{value * 100:,.1f} points"
    text = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
    return f"{text} {_SINGULAR.get(unit, unit) if value == 1 else unit}".strip()


def _decimals(scaled: float) -> int:
    return 0 if scaled >= 100 else 1 if scaled >= 10 else 2
