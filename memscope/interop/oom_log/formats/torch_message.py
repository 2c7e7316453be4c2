"""Torch's out-of-memory messages and their numbers, each wording read field by field.

Formats of torch's caching allocator (c10/cuda/CUDACachingAllocator.cpp and its copies for other
devices): "(GPU 0; T total capacity; A already allocated; F free; C cached)" from 1.0, with
"S reserved in total by PyTorch" from 1.4, and sentences ("GPU 0 has a total capacity of T of which
F is free. ...") from 2.1; cudaMallocAsync and MPS have their own. Texts come without white space.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from memscope.interop.oom_log.formats.message import Backend, Message
from memscope.interop.oom_log.search import has_word
from memscope.interop.oom_log.sizes import SIZE, Size, parse_size

# CUDA, HIP and the like before the "o" of "out of memory".
BACKEND = re.compile(r"(?<![A-Z])([A-Z]{2,8})[Oo]$")


class TorchKind(StrEnum):
    """Messages of torch's allocators, and errors below torch that give no numbers."""

    CACHING = "torch"  # the caching allocator
    ASYNC = "async"  # cudaMallocAsync
    MPS = "mps"
    RETRY = "retry"  # a warning: an allocation failed once and was tried again
    NVML = "nvml"  # the NVML query for the message failed, and the message was lost
    HOST = "host"  # host memory
    HIDDEN = "hidden"  # an assert that hides the error
    BARE = "bare"  # no numbers
    RECORDED = "recorded"  # not from a log: counters of a recording


@dataclass(frozen=True, slots=True)
class TorchMessage(Message):
    """A message of torch's allocator, or of a library below it. Sizes are None if not given.

    ``allocated`` is as printed: since torch 2.4 it includes ``private_pools``, which is memory
    that is free inside private pools. ``process``: all that NVML says this process holds.
    ``is_sentence``: the wording since torch 2.1. ``hint``: the setting that the text suggests.
    """

    kind: TorchKind
    active: Size | None = None
    private_pools: Size | None = None
    process: Size | None = None
    other_processes: tuple[Size, ...] = ()
    has_unreadable_process: bool = False
    is_beyond_exabyte: bool = False
    is_cut: bool = False
    is_sentence: bool = False
    variable: str = ""
    hint: str = ""

    @property
    def weight(self) -> int:
        """How much the message explains, from 0 to 2."""
        if self.kind is TorchKind.BARE:
            return 0
        if self.kind in (TorchKind.CACHING, TorchKind.ASYNC, TorchKind.MPS):
            return 2 if self.size_count >= 3 or self.is_beyond_exabyte else 1
        return 2 if self.kind is TorchKind.NVML else 1


# What NVML gives where it has no number for a process: (2**64 - 1) bytes, printed in GiB.
UNAVAILABLE_BYTES = 1 << 60


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace("SIZE", f"({SIZE})"))


_DEVICE = re.compile(r"[A-Za-z](\d{1,4})(?:;|hasatotal)")
_ANY_SIZE = re.compile(SIZE.replace("-?", "", 1))  # a first character of one sort is found fast
# What a number is, by the words right behind it or, where those do not tell, right before it.
_AFTER = (
    ("totalcapacity", "total"),
    ("isfree", "free"),
    ("free", "free"),
    ("alreadyallocated", "allocated"),
    ("isallocatedby", "allocated"),
    ("isreservedby", "cached"),
    ("cached", "cached"),
    ("reservedintotal", "reserved"),
    ("currentactive", "active"),
    ("allocatedinprivate", "private_pools"),
    ("allowed", "limit"),
)
_BEFORE = (
    ("Triedtoallocate", "requested"),
    ("totalcapacityof", "total"),
    ("totalcapactyof", "total"),
    ("thisprocesshas", "process"),
)
_NAMES = (
    "requested",
    "total",
    "free",
    "allocated",
    "reserved",
    "cached",
    "active",
    "private_pools",
    "limit",
    "process",
)
_NAMES_AFTER = dict(_AFTER)
_WORDS_AFTER = re.compile("|".join(_NAMES_AFTER))
_WORDS_BEFORE = tuple(words for words, _ in _BEFORE)
_OTHER_PROCESS = _pattern(r"Process\d{1,10}hasSIZEmemory")
_VARIABLE = re.compile(r"PYTORCH_(?:[A-Z]{2,8}_)?ALLOC_CONF")
_HINT = re.compile(r"trysetting(?:PYTORCH_\w{2,20}=)?(max_split_size_mb|expandable_segments)")
ENDS = ("unallocated.", "totalbyPyTorch)", "total)", "cached)", "morethan1EB")

_ASYNC = {
    "allocated": _pattern(r"Currentlyallocated:SIZE"),
    "requested": _pattern(r"Requested:SIZE"),
    "total": _pattern(r"Devicelimit:SIZE"),
    "free": _pattern(r"Free\(accordingto\w{2,8}\):SIZE"),
    "limit": _pattern(r"memoryfraction\):SIZE"),
}
_MPS = {
    "allocated": _pattern(r"MPSallocated:SIZE"),
    "other": _pattern(r"otherallocations:SIZE"),
    "limit": _pattern(r"maxallowed:SIZE"),
    "requested": _pattern(r"Triedtoallocate(?:SIZE)"),
}
_RETRY = re.compile(
    r"device(\d{1,4})whiletryingtoallocate(\d{1,20})bytes\(free:(\d{1,20}),total:(\d{1,20})"
)
_WANTED = _pattern(
    r"(?:triedtoallocate|tryingtoallocate|failedtoallocate[\d.]{1,12}[KMG]?\(|[Uu]nabletoallocate"
    r"|FailedtoCUDAcalloc(?:async)?)"
    r"SIZE"
)
_ASYNC_DEVICE = re.compile(r"Allocationondevice(\d{1,4})would")


def parse_torch(kind: TorchKind, text: str) -> TorchMessage | None:
    """The message of ``kind`` at the start of ``text``, or None if it is not a message."""
    if kind in _PARSERS:
        return _PARSERS[kind](text)
    requested = None
    if kind in (TorchKind.BARE, TorchKind.HOST):
        requested = _find(_WANTED, text[:300])
    return TorchMessage(kind, requested=requested, detail=_detail(text))


def _parse_caching(text: str) -> TorchMessage:
    sizes = _name_sizes(text)
    allocated, cached, reserved = sizes["allocated"], sizes["cached"], sizes["reserved"]
    if reserved is None and cached is not None and allocated is not None:
        reserved = allocated + cached
    process, is_unreadable = sizes["process"], "17179869184.00GiBmemory" in text
    if process is not None and not _is_plausible(process, reserved):
        process, is_unreadable = None, True
    device, backend = _DEVICE.search(text[:200]), BACKEND.match(text[: text.find("utofmemory")])
    variable, hint = _VARIABLE.search(text), _HINT.search(text)
    return TorchMessage(
        TorchKind.CACHING,
        backend=backend[1] if backend else "",
        device=int(device[1]) if device else None,
        requested=sizes["requested"],
        total=sizes["total"],
        free=sizes["free"],
        allocated=allocated,
        reserved=reserved,
        active=sizes["active"],
        private_pools=sizes["private_pools"],
        limit=sizes["limit"],
        process=process,
        other_processes=_other_processes(text),
        has_unreadable_process=is_unreadable,
        is_beyond_exabyte="Triedtoallocatemorethan1EB" in text[:80],
        is_cut=not has_word(text, ENDS),
        is_sentence="hasatotalcapac" in text,
        variable=variable[0] if variable else "",
        hint=hint[1] if hint else "",
    )


def _other_processes(text: str) -> tuple[Size, ...]:
    sizes = (parse_size(match[1]) for match in _OTHER_PROCESS.finditer(text))
    return tuple(size for size in sizes if size and 0 < size.bytes < UNAVAILABLE_BYTES)[:64]


def _name_sizes(text: str) -> dict[str, Size | None]:
    """Each number by its name; the first of a name counts."""
    found: dict[str, Size | None] = dict.fromkeys(_NAMES)
    for match in _ANY_SIZE.finditer(text):
        start, end = match.span()
        start -= text.startswith("-", start - 1) and start > 0
        name = _name_of(text, start, end)
        if name and found[name] is None:
            found[name] = parse_size(text[start:end])
    return found


def _name_of(text: str, start: int, end: int) -> str:
    """What the number between ``start`` and ``end`` is, "" where its words do not tell."""
    if after := _WORDS_AFTER.match(text, end):
        return _NAMES_AFTER[after[0]]
    if not text.endswith(_WORDS_BEFORE, 0, start):
        return ""
    return next(name for words, name in _BEFORE if text.endswith(words, 0, start))


def _parse_async(text: str) -> TorchMessage:
    sizes = {name: _find(pattern, text) for name, pattern in _ASYNC.items()}
    limit, total = sizes["limit"], sizes["total"]
    if limit is not None and (total is None or limit.bytes >= total.bytes):
        limit = None
    device = _ASYNC_DEVICE.match(text)
    return TorchMessage(
        TorchKind.ASYNC,
        Backend.CUDA,
        int(device[1]) if device else None,
        requested=sizes["requested"],
        total=total,
        free=sizes["free"],
        allocated=sizes["allocated"],
        limit=limit,
    )


def _parse_mps(text: str) -> TorchMessage:
    sizes = {name: _find(pattern, text) for name, pattern in _MPS.items()}
    other, allocated = sizes["other"], sizes["allocated"]
    return TorchMessage(
        TorchKind.MPS,
        Backend.MPS,
        requested=sizes["requested"],
        allocated=allocated,
        reserved=allocated + other if allocated is not None and other is not None else None,
        limit=sizes["limit"],
    )


def _parse_retry(text: str) -> TorchMessage | None:
    match = _RETRY.search(text)
    if match is None:
        return None
    requested, free, total = (parse_size(f"{number}bytes") for number in match.groups()[1:])
    return TorchMessage(TorchKind.RETRY, Backend.CUDA, int(match[1]), requested, total, free)


def _is_plausible(process: Size, reserved: Size | None) -> bool:
    """Whether a process holds what torch reserved; NVML prints 0 or all ones for no number."""
    if process.bytes >= UNAVAILABLE_BYTES or process.bytes <= 0:
        return False
    return reserved is None or process.bytes >= reserved.bytes - 4 * process.slack_bytes


def _find(pattern: re.Pattern[str], text: str) -> Size | None:
    match = pattern.search(text)
    group = next((group for group in match.groups() if group), None) if match else None
    return parse_size(group) if group else None


def _detail(text: str) -> str:
    match = re.match(r"[\w ]{1,40}", text)
    return match[0] if match else ""


_PARSERS: dict[TorchKind, Callable[[str], TorchMessage | None]] = {
    TorchKind.CACHING: _parse_caching,
    TorchKind.ASYNC: _parse_async,
    TorchKind.MPS: _parse_mps,
    TorchKind.RETRY: _parse_retry,
}
