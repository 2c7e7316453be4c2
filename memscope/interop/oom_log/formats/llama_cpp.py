"""Out-of-memory messages of llama.cpp and of programs built on it, such as Ollama.

Worded by ggml/src/ggml-cuda/ggml-cuda.cu. Texts come without white space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from memscope.interop.oom_log.formats.message import Backend, Format, Message
from memscope.interop.oom_log.formats.torch_message import TorchKind, TorchMessage
from memscope.interop.oom_log.sizes import SIZE, parse_size


class LlamaKind(StrEnum):
    """The one kind."""

    ALLOCATION = "llama"


class Purpose(StrEnum):
    """What the memory was for, as a sentence names it."""

    WEIGHTS = "weights"
    KV_CACHE = "KV cache"
    STATE = "recurrent state"
    COMPUTE = "compute buffers"


@dataclass(frozen=True, slots=True)
class LlamaMessage(Message):
    """One message. ``purpose``: what the memory was for, None if the text does not say."""

    kind: LlamaKind
    purpose: Purpose | None = None


_ASKED = re.compile(rf"allocating({SIZE})ondevice(\d{{1,4}}):")
# The lines after the message say what the memory was for; `alloc_tensor_range` does not.
_PURPOSES = (
    ("errorloadingmodel", Purpose.WEIGHTS),
    ("kvcache", Purpose.KV_CACHE),
    ("kv_cache", Purpose.KV_CACHE),
    ("rscache", Purpose.STATE),
    ("failedtoallocatecompute", Purpose.COMPUTE),
    ("ggml_gallocr_reserve", Purpose.COMPUTE),
)


def _find_start(kind: LlamaKind, text: str, place: int) -> int:
    begin = text.rfind("allocating", max(place - 48, 0), place)
    return place if begin < 0 else begin


def _parse(kind: LlamaKind, text: str) -> Message:
    asked = _ASKED.match(text)
    if asked is None and "ggml" not in text and "llama" not in text:
        return TorchMessage(TorchKind.BARE, Backend.CUDA, detail="cudaMalloc failed: out of memory")
    purposes = [(text.find(words), purpose) for words, purpose in _PURPOSES if words in text]
    return LlamaMessage(
        kind,
        Backend.CUDA,
        int(asked[2]) if asked else None,
        requested=parse_size(asked[1]) if asked else None,
        purpose=min(purposes)[1] if purposes else None,
    )


FORMAT = Format(
    name="llama_cpp",
    message=LlamaMessage,
    needles={LlamaKind.ALLOCATION: ("cudaMallocfailed:outofmemory",)},
    find_start=_find_start,
    parse=_parse,
)
