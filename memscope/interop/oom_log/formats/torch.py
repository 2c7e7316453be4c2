"""Out-of-memory messages of torch and of what it stands on: what they hold, where they begin.

Texts come without white space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memscope.interop.oom_log.sizes import Size


@dataclass(frozen=True, slots=True)
class OomMessage:
    """One message; what its text does not say is None.

    ``kind`` is "torch" (the caching allocator), "async" (cudaMallocAsync), "mps", "retry" (a
    warning: an allocation failed once and was tried again), "nvml" (the query that decorates the
    message was refused), "host" (memory of the host), "disguise" (an assert behind which torch
    hides it), or "bare" (no numbers).

    ``allocated`` is as printed: since 2.4 it includes ``private_pools``, which is memory that is
    free inside private pools. ``is_sentence``: the wording since torch 2.1.
    """

    kind: str
    backend: str = ""
    device: int | None = None
    requested: Size | None = None
    total: Size | None = None
    free: Size | None = None
    allocated: Size | None = None
    reserved: Size | None = None
    active: Size | None = None
    private_pools: Size | None = None
    limit: Size | None = None
    process: Size | None = None
    other_processes: tuple[Size, ...] = ()
    has_unreadable_process: bool = False
    is_beyond_exabyte: bool = False
    is_cut: bool = False
    is_sentence: bool = False
    variable: str = ""
    hint: str = ""
    detail: str = ""

    @property
    def amounts(self) -> int:
        """How many of the main numbers the text gives."""
        main = (self.requested, self.total, self.free, self.allocated, self.reserved)
        return sum(size is not None for size in main)


# What a message of each kind has in it, without white space; before it the kinds that say more.
NEEDLES = {
    "torch": ("utofmemory.Triedto", "utofmemoryTriedto"),
    "mps": ("backendoutofmemory(",),
    "async": ("wouldexceedallowed",),
    "retry": ("withOOMondevice",),
    "nvml": ("NVML_SUCCESS==",),
    "disguise": ("handles_.at(i)INTERNALASSERTFAILED", "CUDAdrivererror:devicenotready"),
}
VAGUE_NEEDLES = {
    "host": (
        "DefaultCPUAllocator:",
        "ArrayMemoryError:Unabletoallocate",
    ),
    "bare": (
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
WORDS = (
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
# CUDA, HIP and the like before the "o" of "out of memory".
BACKEND = re.compile(r"(?<![A-Z])([A-Z]{2,8})[Oo]$")


def start_of(kind: str, text: str, place: int) -> int | None:
    """Where the message begins whose needle is at ``place``; None where it is source text."""
    if kind == "torch":
        backend = BACKEND.search(text[max(place - 9, 0) : place])
        return place - 1 - (len(backend[1]) if backend else 0)
    if kind == "async":
        begin = text.rfind("Allocationondevice", max(place - 24, 0), place)
        return None if begin < 0 else begin
    if kind == "nvml":
        return place if "INTERNALASSERTFAILED" in text[place : place + 160] else None
    if kind == "bare" and _SOURCE_TEXT.search(text[max(place - 20, 0) : place]):
        return None
    return None if kind == "bare" and _is_prose(text, place) else place


def _is_prose(text: str, place: int) -> bool:
    before = text[max(place - _PROSE_CHARACTERS, 0) : place]
    if before.endswith("Error:"):  # what follows an exception's name is its message
        return False
    after = text[place : place + _PROSE_CHARACTERS]
    return bool(_PROSE_BEFORE.search(before) or _PROSE_AFTER.search(after))
