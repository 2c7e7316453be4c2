"""Out-of-memory messages of ONNX Runtime.

Worded by onnxruntime/core/framework/bfc_arena.cc. Texts come without white space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from memscope.interop.oom_log.formats.message import Format, Message
from memscope.interop.oom_log.sizes import parse_size


class OnnxRuntimeKind(StrEnum):
    """The one kind."""

    ARENA = "onnxruntime"


@dataclass(frozen=True, slots=True)
class OnnxRuntimeMessage(Message):
    """One message. ``free``: what was left of ONNX Runtime's own limit."""

    kind: OnnxRuntimeKind


_BUFFER = re.compile(r"ofsize(\d{1,20})")
_LIMITED = re.compile(r"Availablememoryof(\d{1,20})issmallerthanrequestedbytesof(\d{1,20})")


def _find_start(kind: OnnxRuntimeKind, text: str, place: int) -> int:
    begin = text.rfind("Availablememoryof", max(place - 48, 0), place)
    return place if begin < 0 else begin


def _parse(kind: OnnxRuntimeKind, text: str) -> OnnxRuntimeMessage:
    limited = _LIMITED.match(text)
    if limited:
        free, requested = (parse_size(f"{number}bytes") for number in limited.groups())
        return OnnxRuntimeMessage(kind, requested=requested, free=free)
    buffer = _BUFFER.search(text[:80])
    requested = parse_size(f"{buffer[1]}bytes") if buffer else None
    return OnnxRuntimeMessage(kind, requested=requested)


FORMAT = Format(
    name="onnxruntime",
    message=OnnxRuntimeMessage,
    needles={
        OnnxRuntimeKind.ARENA: (
            "Failedtoallocatememoryforrequestedbufferofsize",
            "issmallerthanrequestedbytesof",
        )
    },
    words=("smaller than requested",),
    find_start=_find_start,
    parse=_parse,
)
