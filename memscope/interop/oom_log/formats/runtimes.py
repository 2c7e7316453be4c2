"""Out-of-memory messages of llama.cpp (and what is built on it, as Ollama) and of ONNX Runtime.

llama.cpp: ggml/src/ggml-cuda/ggml-cuda.cu. ONNX Runtime: onnxruntime/core/framework/bfc_arena.cc.
Texts come without white space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memscope.interop.oom_log.formats.torch import OomMessage
from memscope.interop.oom_log.sizes import SIZE, parse_size


@dataclass(frozen=True, slots=True)
class RuntimeMessage(OomMessage):
    """One message. ``kind``: "llama" or "onnxruntime".

    ``detail``: what llama.cpp wanted memory for, "" where it does not say. ``free``: what was left
    of ONNX Runtime's own limit.
    """


NEEDLES = {
    "llama": ("cudaMallocfailed:outofmemory",),
    "onnxruntime": (
        "Failedtoallocatememoryforrequestedbufferofsize",
        "issmallerthanrequestedbytesof",
    ),
}
WORDS = ("smaller than requested",)

_ASKED = re.compile(rf"allocating({SIZE})ondevice(\d{{1,4}}):")
_BUFFER = re.compile(r"ofsize(\d{1,20})")
_LIMITED = re.compile(r"Availablememoryof(\d{1,20})issmallerthanrequestedbytesof(\d{1,20})")
# What follows llama.cpp's message says what the memory was for; `alloc_tensor_range` does not.
_PURPOSES = (
    ("errorloadingmodel", "weights"),
    ("kvcache", "KV cache"),
    ("kv_cache", "KV cache"),
    ("rscache", "recurrent state"),
    ("failedtoallocatecompute", "compute buffers"),
    ("ggml_gallocr_reserve", "compute buffers"),
)


def start_of(kind: str, text: str, place: int) -> int | None:
    """Where the message begins whose needle is at ``place``."""
    word = "allocating" if kind == "llama" else "Availablememoryof"
    begin = text.rfind(word, max(place - 48, 0), place)
    return place if begin < 0 else begin


def parse_runtime(kind: str, text: str) -> OomMessage:
    """The message of ``kind`` at the start of ``text``."""
    return _parse_llama(text) if kind == "llama" else _parse_onnxruntime(text)


def _parse_llama(text: str) -> OomMessage:
    asked = _ASKED.match(text)
    if asked is None and "ggml" not in text and "llama" not in text:
        return OomMessage("bare", "CUDA", detail="cudaMalloc failed: out of memory")
    told = [(text.find(words), purpose) for words, purpose in _PURPOSES if words in text]
    return RuntimeMessage(
        "llama",
        "CUDA",
        int(asked[2]) if asked else None,
        requested=parse_size(asked[1]) if asked else None,
        detail=min(told)[1] if told else "",
    )


def _parse_onnxruntime(text: str) -> OomMessage:
    limited = _LIMITED.match(text)
    if limited:
        left, wanted = (parse_size(f"{number}bytes") for number in limited.groups())
        return RuntimeMessage("onnxruntime", requested=wanted, free=left)
    buffer = _BUFFER.search(text[:80])
    requested = parse_size(f"{buffer[1]}bytes") if buffer else None
    return RuntimeMessage("onnxruntime", requested=requested)
