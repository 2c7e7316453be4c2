"""Sizes as other programs print them, with their rounding error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

UNIT_BYTES = {"bytes": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    UNIT_BYTES[f"{_letter}iB"] = 1024**_power
    UNIT_BYTES[f"{_letter}B"] = 1024**_power  # torch, vLLM and SGLang count by 1024 and write GB

# Of a text without white space; each part is bounded, so that hostile digits cost nothing.
SIZE = r"(?:-?\d{1,20}(?:\.\d{1,12})?(?:bytes|[KMGT]iB|[KMGT]B|B))"
MAX_BYTES = 1 << 62
# Kubernetes writes "16Gi", "500M" or plain bytes.
QUANTITY = r"\d{1,18}(?:\.\d{1,6})?(?:Ki|Mi|Gi|Ti|[kMGT])?"
_QUANTITY_PARTS = re.compile(r"([\d.]{1,25})(\w{0,2})")
_QUANTITY_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_QUANTITY_UNITS |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGT", 1)}
_SIZE = re.compile(r"(-?\d{1,20})(?:\.(\d{1,12}))?(bytes|[KMGT]iB|[KMGT]B|B)")


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes as printed. The true number differs by at most ``slack_bytes``."""

    bytes: int
    slack_bytes: float = 0.0

    def __add__(self, other: Size) -> Size:
        return Size(self.bytes + other.bytes, self.slack_bytes + other.slack_bytes)

    def __sub__(self, other: Size) -> Size:
        return Size(self.bytes - other.bytes, self.slack_bytes + other.slack_bytes)


def parse_size(text: str) -> Size | None:
    """The size in ``text`` ("10.84GiB", without white space), None if it is not a possible size."""
    size = parse_difference(text)
    return None if size is None or size.bytes < 0 else size


@lru_cache(maxsize=4096)  # the ranks of a job print the same ones
def parse_difference(text: str) -> Size | None:
    """Like ``parse_size``, but the size may be negative."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    decimals = match[2] or ""
    unit = UNIT_BYTES[match[3]]
    count = round(float(f"{match[1]}.{decimals or 0}") * unit)
    slack = 0.0 if unit == 1 else unit * 10.0 ** -len(decimals) / 2
    return Size(count, slack) if abs(count) < MAX_BYTES else None


def parse_quantity(text: str) -> Size | None:
    """The size in ``text``, a match of ``QUANTITY``; None if it is impossibly large."""
    match = _QUANTITY_PARTS.fullmatch(text)
    count = round(float(match[1]) * _QUANTITY_UNITS[match[2]]) if match else MAX_BYTES
    return Size(count) if 0 <= count < MAX_BYTES else None
