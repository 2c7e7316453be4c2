"""Out-of-memory messages of torch and of the libraries below it: where they begin and end.

Texts come without white space. `torch_message` reads their numbers.
"""

from __future__ import annotations

import re

from memscope.interop.oom_log.formats.message import Format
from memscope.interop.oom_log.formats.torch_message import (
    BACKEND,
    ENDS,
    TorchKind,
    TorchMessage,
    parse_torch,
)

# Kinds that say more come first.
_NEEDLES = {
    TorchKind.CACHING: ("utofmemory.Triedto", "utofmemoryTriedto"),
    TorchKind.MPS: ("backendoutofmemory(",),
    TorchKind.ASYNC: ("wouldexceedallowed",),
    TorchKind.RETRY: ("withOOMondevice",),
    TorchKind.NVML: ("NVML_SUCCESS==",),
    TorchKind.HIDDEN: ("handles_.at(i)INTERNALASSERTFAILED", "CUDAdrivererror:devicenotready"),
}
_VAGUE_NEEDLES = {
    TorchKind.HOST: (
        "DefaultCPUAllocator:",
        "ArrayMemoryError:Unabletoallocate",
    ),
    TorchKind.BARE: (
        "error:outofmemory",
        "_ERROR_OUT_OF_MEMORY",
        "cudaErrorMemoryAllocation",
        "hipErrorOutOfMemory",
        "_ERROR_OUT_OF_DEVICE_MEMORY",
        "_STATUS_ALLOC_FAILED",
        "cudaruntimeerror(2):outofmemory",
        "'outofmemory'",
        "OutOfMemoryError:",
        "CUDAoutofmemory",
        "TritonError[CUDA]:outofmemory",
        "Erroroutofmemoryatline",
        "FailedtoCUDAcalloc",
        "HIPoutofmemory",
        "XPUoutofmemory",
        "NPUoutofmemory",
    ),
}
# How lines of a log that hold part of a message look before white space is taken out.
_WORDS = (
    "f memory",
    "MPS back",
    "(MPS alloc",
    "Tried to",
    "to allocate",
    "out of mem",
    "NVML_SUCCESS",
    "handles_.at",
    "not ready",
    "EXHAUSTED",
    "OUT_OF_",
    "ALLOC_FAILED",
    "ErrorMemory",
    "OutOfMemory",
    "would exceed",
    "ed allowed",
    "CPUAllocator",
    "ArrayMemory",
    "with OOM",
    "M on device",
    "CUDA calloc",
)
# Source text in a traceback that names the error is none.
_SOURCE_TEXT = re.compile(r"except(?:torch\.)?(?:cuda\.)?$|[\"']$")
# A sentence about such errors is none: what it does about them, or that they may come, stands right
# before their name, or what deals with them right behind it.
_PROSE_BEFORE = re.compile(
    r"(?:handl(?:e|es|ed|ing)|avoid(?:s|ing)?|prevent(?:s|ing)?|against|incaseof"
    r"|ifyou(?:get|see|hit|have|face|encounter|experience|runinto)"
    r"|(?:may|might|could|can|would)(?:cause|trigger|raise|throw|get|hit|leadto|resultin|runinto))"
    r"(?:an?|any|the|possible|potential){0,2}$",
    re.IGNORECASE,
)
_PROSE_AFTER = re.compile(r"outofmemory(?:errors?)?(?:handl(?:er|ing)|recovery|protection|guard)")
_PROSE_CHARACTERS = 48


def _find_start(kind: TorchKind, text: str, place: int) -> int | None:
    """Where the message begins whose needle is at ``place``; None where it is source text."""
    if kind is TorchKind.CACHING:
        backend = BACKEND.search(text[max(place - 9, 0) : place])
        return place - 1 - (len(backend[1]) if backend else 0)
    if kind is TorchKind.ASYNC:
        begin = text.rfind("Allocationondevice", max(place - 24, 0), place)
        return None if begin < 0 else begin
    if kind is TorchKind.NVML:
        return place if "INTERNALASSERTFAILED" in text[place : place + 160] else None
    if kind is TorchKind.BARE and _SOURCE_TEXT.search(text[max(place - 20, 0) : place]):
        return None
    return None if kind is TorchKind.BARE and _is_prose(text, place) else place


def _is_prose(text: str, place: int) -> bool:
    before = text[max(place - _PROSE_CHARACTERS, 0) : place]
    if before.endswith("Error:"):  # what follows an exception's name is its message
        return False
    after = text[place : place + _PROSE_CHARACTERS]
    return bool(_PROSE_BEFORE.search(before) or _PROSE_AFTER.search(after))


FORMAT = Format(
    name="torch",
    message=TorchMessage,
    needles=_NEEDLES,
    vague_needles=_VAGUE_NEEDLES,
    words=_WORDS,
    find_start=_find_start,
    parse=parse_torch,
    max_lines={TorchKind.CACHING: 60, TorchKind.BARE: 2, TorchKind.HOST: 2},
    ends={TorchKind.CACHING: ENDS},
)
