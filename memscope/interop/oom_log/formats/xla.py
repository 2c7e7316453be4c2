"""Out-of-memory messages of XLA, JAX's compiler, and of TensorFlow, which shares its allocator.

GPUs: xla/tsl/framework/bfc_allocator.cc and the RESOURCE_EXHAUSTED errors of its callers, with the
buffers of the program that asked (xla/service/buffer_assignment.cc); the driver's refusals from
xla/stream_executor. TPUs print "G" for GiB, once a program is compiled that cannot fit, and where
an allocation fails. Texts come without white space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from memscope.interop.oom_log.formats.message import Backend, Format, Message
from memscope.interop.oom_log.sizes import SIZE, Size, parse_size


class XlaKind(StrEnum):
    """Messages of XLA and of TensorFlow."""

    ALLOCATION = "xla"  # an allocation failed
    COMPILE = "xla_compile"  # a program needs more than the device has
    POOL = "xla_pool"  # the allocator's own warning
    DRIVER = "xla_driver"  # the driver refused to enlarge XLA's pool
    LIBRARY = "xla_library"  # a CUDA library or program found no room outside the pool
    TENSORFLOW = "tensorflow"


class XlaLibrary(StrEnum):
    """What found no room outside XLA's pool, as a sentence names it."""

    PROGRAM = "a compiled program"
    CUBLAS = "cuBLAS"
    CUDNN = "cuDNN"
    OTHER = "a library of CUDA"


@dataclass(frozen=True, slots=True)
class XlaMessage(Message):
    """A message of XLA or TensorFlow.

    ``arguments``, ``outputs``, ``temporaries``: buffers of the program that did not fit. Outputs
    that reuse an argument are not counted. ``library``: what failed outside the pool.
    """

    kind: XlaKind
    arguments: Size | None = None
    outputs: Size | None = None
    temporaries: Size | None = None
    library: XlaLibrary | None = None

    @property
    def weight(self) -> int:
        """How much the message explains, from 0 to 2."""
        if self.kind in (XlaKind.DRIVER, XlaKind.LIBRARY):
            return 0
        return 1 if self.kind is XlaKind.POOL else 2


_NEEDLES = {
    XlaKind.ALLOCATION: (
        "RESOURCE_EXHAUSTED:Outofmemory",
        "Resourceexhausted:Outofmemory",
        "RESOURCE_EXHAUSTED:Failedtoallocaterequest",
        "Resourceexhausted:Failedtoallocaterequest",
        "Thatwasnotpossible.Thereare",
    ),
    XlaKind.COMPILE: ("Ranoutofmemoryinmemoryspace",),
    XlaKind.POOL: ("_bfc)ranoutofmemorytryingtoallocate",),
    XlaKind.DRIVER: ("bytes)fromdevice:",),
    XlaKind.LIBRARY: (
        "Failedtoloadin-memoryCUBIN",
        "DNNlibraryinitializationfailed",
        "ouldnotcreatecudnnhandle:",
        "ailedtocreatecublashandle:",
    ),
    XlaKind.TENSORFLOW: ("OOMwhenallocatingtensorwithshape",),
}
_WORDS = (
    "OOM when",
    "was not possible",
    "from device:",
    "in-memory CUBIN",
    "DNN library init",
    "cudnn handle",
    "cublas handle",
)
_BEGINS = {
    XlaKind.ALLOCATION: ("Attemptingtoallocate", 48),
    XlaKind.POOL: ("Allocator(", 24),
    XlaKind.DRIVER: ("ailedtoallocate", 64),
}


def _find_start(kind: XlaKind, text: str, place: int) -> int | None:
    """Where the message begins whose needle is at ``place``; None where it is none."""
    if kind not in _BEGINS or text.startswith(("RESOURCE", "Resource"), place):
        return place
    words, most = _BEGINS[kind]
    begin = text.rfind(words, max(place - most, 0), place)
    return None if begin < 0 else begin


_ASKED = re.compile(
    rf"(?:allocate|allocating|requestfor)(?:({SIZE})|([\d.]{{1,12}}[KMG])[.(])(?:\((\d{{1,20}}(?:B|bytes))\))?"
)
_FREE = re.compile(r"Thereare([\d.]{1,12}[KMG])free")
_USED = re.compile(r"Used([\d.]{1,12}[KMGT])of([\d.]{1,12}[KMGT])")
_DEVICE = re.compile(r"GPU_(\d{1,4})_bfc|deviceordinal(\d{1,4})|device:GPU:(\d{1,4})")
_ARGUMENTS = re.compile(rf"parameterallocation:({SIZE})")
_OUTPUTS = re.compile(rf"maybe_live_outallocation:({SIZE})")
_TEMPORARIES = re.compile(rf"preallocatedtempallocation:({SIZE})")
_NO_FAILURE = "indicatesthatthisisnotafailure"


def _parse(kind: XlaKind, text: str) -> XlaMessage | None:
    """The message of ``kind`` at the start of ``text``; None for a warning that nothing failed."""
    if kind is XlaKind.POOL and _NO_FAILURE in text:
        return None
    if kind is XlaKind.LIBRARY:
        return _parse_library(text)
    device = _DEVICE.search(text[:600])
    used = _USED.search(text[:400]) if kind is XlaKind.COMPILE else None
    free = _FREE.search(text[:200])
    return XlaMessage(
        kind,
        backend=Backend.TPU if used or free else Backend.CUDA,
        device=next(int(group) for group in device.groups() if group) if device else None,
        requested=_short_size(used[1]) if used else _asked(text[:200]),
        total=_short_size(used[2]) if used else None,
        free=_short_size(free[1]) if free else None,
        arguments=_find(_ARGUMENTS, text),
        outputs=_find(_OUTPUTS, text),
        temporaries=_find(_TEMPORARIES, text),
    )


_LIBRARIES = (
    ("CUBIN", XlaLibrary.PROGRAM),
    ("ublas", XlaLibrary.CUBLAS),
    ("", XlaLibrary.CUDNN),
)
_LEFT = re.compile(r"Memoryusage:(\d{1,20})bytesfree,(\d{1,20})bytestotal")


def _parse_library(text: str) -> XlaMessage | None:
    """None if a program did not load for another reason than memory."""
    library = next(name for word, name in _LIBRARIES if word in text[:30])
    if library is XlaLibrary.PROGRAM and "OUT_OF_MEMORY" not in text[:200]:
        return None
    left = _LEFT.search(text[:400])
    free, total = (
        (parse_size(f"{number}bytes") for number in left.groups()) if left else (None,) * 2
    )
    return XlaMessage(XlaKind.LIBRARY, Backend.CUDA, free=free, total=total, library=library)


def _find(pattern: re.Pattern[str], text: str) -> Size | None:
    match = pattern.search(text)
    return parse_size(match[1]) if match else None


def _asked(text: str) -> Size | None:
    match = _ASKED.search(text)
    if match is None:
        return None
    return parse_size(match[3] or match[1] or "") or _short_size(match[2] or "")


def _short_size(text: str) -> Size | None:
    """ "21.95G" as a size."""
    return parse_size(f"{text}iB")


FORMAT = Format(
    name="xla",
    message=XlaMessage,
    needles=_NEEDLES,
    words=_WORDS,
    find_start=_find_start,
    parse=_parse,
)
