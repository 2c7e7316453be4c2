"""Sizes as Kubernetes writes them: "16Gi", "500M", or plain bytes."""

from __future__ import annotations

import re

from memscope.interop.oom_log.sizes import MAX_BYTES, Size

QUANTITY = r"\d{1,18}(?:\.\d{1,6})?(?:Ki|Mi|Gi|Ti|[kMGT])?"
_PARTS = re.compile(r"([\d.]{1,25})(\w{0,2})")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGT", 1)}


def parse_quantity(text: str) -> Size | None:
    """The bytes that ``text``, a match of ``QUANTITY``, says; None where none can be so many."""
    match = _PARTS.fullmatch(text)
    count = round(float(match[1]) * _UNITS[match[2]]) if match else MAX_BYTES
    return Size(count) if 0 <= count < MAX_BYTES else None
