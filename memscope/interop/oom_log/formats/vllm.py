"""vLLM's refusals to start for lack of memory.

Worded by vllm/v1/worker/gpu_worker.py, vllm/v1/core/kv_cache_utils.py and, before V1,
vllm/worker/worker.py. Texts come without white space.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from memscope.interop.oom_log.formats.message import Format, Refusal
from memscope.interop.oom_log.sizes import SIZE, parse_difference, parse_size


class VllmKind(StrEnum):
    """Why it refused."""

    FREE = "free"  # less is free than the server's share
    KV = "kv"  # one request of full length does not fit
    TOKENS = "tokens"  # the same, counted in tokens
    NO_KV = "no_kv"  # the weights take the whole share
    CHANGED = "changed"  # others gave memory back during the measurement
    WARMUP = "warmup"
    SEQUENCES = "sequences"  # the states of so many sequences do not fit


@dataclass(frozen=True, slots=True)
class VllmRefusal(Refusal):
    """One refusal. ``requested``: the KV cache or the share that vLLM needs."""

    kind: VllmKind

    @property
    def weight(self) -> int:
        """How much the message explains, from 0 to 2."""
        return 1 if self.kind is VllmKind.WARMUP else 2


_FREE = re.compile(
    rf"device(?:\w{{2,8}}?:(\d{{1,4}}))?\((\d{{1,9}}(?:\.\d{{1,9}})?)(?:GiB)?/({SIZE})\)"
    rf"onstartupislessthandesiredGPUmemoryutilization\((\d(?:\.\d{{1,9}})?),({SIZE})\)"
)
_KV = re.compile(
    rf"(?:maxseqlen\((\d{{1,12}})\),\(?)?({SIZE})KVcacheisneeded"
    rf",whichislargerthantheavailableKVcachememory\(({SIZE})\)"
    r"(?:.{0,80}?estimatedmaximummodellengthis(\d{1,12}))?"
)
_TOKENS = re.compile(r"maxseqlen\((\d{1,9})\)islargerthan.{0,60}?KVcache\((\d{1,9})\)")
_CHANGED = re.compile(rf"Initialfreememory({SIZE}|\d{{1,20}}),currentfreememory({SIZE}|\d{{1,20}})")
_WARMUP = re.compile(r"warmingup\w{0,20}(?:\([^)]{0,60}\))?with(\d{1,7})dummy")
_SEQUENCES = re.compile(r"max_num_seqs\((\d{1,9})\)exceedsavailableMambacacheblocks\((\d{1,9})\)")


def _find_start(kind: VllmKind, text: str, place: int) -> int | None:
    if kind is VllmKind.SEQUENCES:
        begin = text.rfind("max_num_seqs(", max(place - 24, 0), place)
        return None if begin < 0 else begin
    if kind is VllmKind.TOKENS and "atleastonerequest" in text[max(place - 40, 0) : place]:
        return None  # part of a refusal that says more
    return place


def _parse(kind: VllmKind, text: str) -> VllmRefusal | None:
    """None if the text is part of a program's source."""
    return _PARSERS[kind](text)


def _parse_free(text: str) -> VllmRefusal | None:
    match = _FREE.search(text)
    if match is None:
        return None
    device, free, total, share, wanted = match.groups()
    return VllmRefusal(
        VllmKind.FREE,
        device=int(device) if device else None,
        requested=parse_size(wanted),
        total=parse_size(total),
        free=parse_size(f"{free}GiB"),
        share=float(share),
    )


def _parse_kv(text: str) -> VllmRefusal | None:
    match = _KV.search(text)
    if match is None:
        return None
    tokens, needed, available, fitting = match.groups()
    return VllmRefusal(
        VllmKind.KV,
        requested=parse_size(needed),
        available=parse_difference(available),
        wanted_count=int(tokens) if tokens else None,
        fitting_count=int(fitting) if fitting else None,
    )


def _parse_tokens(text: str) -> VllmRefusal | None:
    match = _TOKENS.search(text)
    if match is None:
        return None
    return VllmRefusal(VllmKind.TOKENS, wanted_count=int(match[1]), fitting_count=int(match[2]))


def _parse_no_kv(text: str) -> VllmRefusal:
    return VllmRefusal(VllmKind.NO_KV)


def _parse_changed(text: str) -> VllmRefusal | None:
    match = _CHANGED.search(text)
    if match is None:
        return None
    before, after = (
        parse_size(number if number[-1] == "B" else f"{number}bytes") for number in match.groups()
    )
    return VllmRefusal(VllmKind.CHANGED, free=before, available=after)


def _parse_warmup(text: str) -> VllmRefusal | None:
    match = _WARMUP.search(text)
    return VllmRefusal(VllmKind.WARMUP, wanted_count=int(match[1])) if match else None


def _parse_sequences(text: str) -> VllmRefusal | None:
    match = _SEQUENCES.search(text)
    if match is None:
        return None
    return VllmRefusal(VllmKind.SEQUENCES, wanted_count=int(match[1]), fitting_count=int(match[2]))


_PARSERS: dict[VllmKind, Callable[[str], VllmRefusal | None]] = {
    VllmKind.FREE: _parse_free,
    VllmKind.KV: _parse_kv,
    VllmKind.TOKENS: _parse_tokens,
    VllmKind.NO_KV: _parse_no_kv,
    VllmKind.CHANGED: _parse_changed,
    VllmKind.WARMUP: _parse_warmup,
    VllmKind.SEQUENCES: _parse_sequences,
}

FORMAT = Format(
    name="vllm",
    message=VllmRefusal,
    needles={
        VllmKind.FREE: ("Freememoryondevice",),
        VllmKind.KV: ("Toserveatleastonerequest",),
        VllmKind.TOKENS: ("odel'smaxseqlen(",),
        VllmKind.NO_KV: ("Noavailablememoryforthecacheblocks",),
        VllmKind.CHANGED: ("Errorinmemoryprofiling.Initialfreememory",),
        VllmKind.WARMUP: ("outofmemoryoccurredwhenwarmingup",),
        VllmKind.SEQUENCES: ("exceedsavailableMambacache",),
    },
    words=(
        "Free memory on",
        "least one request",
        "max seq len",
        "available memory",
        "cache blocks",
        "memory profiling",
        "warming up",
        "Mamba cache",
    ),
    find_start=_find_start,
    parse=_parse,
)
