"""Refusals of inference servers to start, or to go on, for lack of memory.

vLLM: vllm/v1/worker/gpu_worker.py, vllm/v1/core/kv_cache_utils.py and, before V1,
vllm/worker/worker.py. SGLang: sglang/srt/model_executor/model_runner.py and
sglang/srt/mem_cache/common.py. Their "GB" counts by 1024. Texts come without white space.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from memscope.interop.oom_log.sizes import SIZE, Size, parse_difference, parse_size


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refusal; what its text does not say is None.

    ``kind``: "free" (less is free than the server's share), "kv" (one request of full length does
    not fit), "tokens" (the same, counted in tokens), "no_kv" (weights take the whole share),
    "changed" (others gave memory back while it was measured), "warmup", "unbalanced" (one card of
    several has less free), "slots" (KV cache or request slots ran out while serving), "sequences"
    """

    kind: str
    server: str
    device: int | None = None
    requested: Size | None = None
    total: Size | None = None
    free: Size | None = None
    available: Size | None = None
    utilization: float | None = None
    wanted: int | None = None
    fitting: int | None = None

    @property
    def amounts(self) -> int:
        """How much the text says."""
        sizes = (self.requested, self.total, self.free, self.available)
        numbers = (self.utilization, self.wanted, self.fitting)
        return sum(value is not None for value in (*sizes, *numbers))


NEEDLES = {
    "free": ("Freememoryondevice",),
    "kv": ("Toserveatleastonerequest",),
    "tokens": ("odel'smaxseqlen(",),
    "no_kv": (
        "Noavailablememoryforthecacheblocks",
        "Notenoughmemory.Pleasetrytoincrease--mem-fraction",
        "NotenoughGPUmemoryfor",
    ),
    "changed": ("Errorinmemoryprofiling.Initialfreememory",),
    "warmup": ("outofmemoryoccurredwhenwarmingup",),
    "unbalanced": ("Thememorycapacityisunbalanced",),
    "slots": (
        "Prefilloutofmemory.Trytolower",
        "Decodeoutofmemory.Trytolower",
        "alloc_req_slotsrunsoutofmemory",
        "Outofmemory.Pleasesetasmallernumber",
        "Notenoughmemorytohandle",
    ),
    "sequences": ("exceedsavailableMambacache",),
}
# How lines of a log that hold part of a refusal look before white space is taken out.
WORDS = (
    "Free memory on",
    "least one request",
    "max seq len",
    "available memory",
    "cache blocks",
    "Not enough",
    "memory profiling",
    "warming up",
    "is unbalanced",
    "runs out of",
    "smaller number",
    "Mamba cache",
)


def start_of(kind: str, text: str, place: int) -> int | None:
    """Where the refusal begins whose needle is at ``place``; None where it is none."""
    if kind == "sequences":
        begin = text.rfind("max_num_seqs(", max(place - 24, 0), place)
        return None if begin < 0 else begin
    if kind == "tokens" and "atleastonerequest" in text[max(place - 40, 0) : place]:
        return None  # part of a refusal that says more
    return place


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
_UNBALANCED = re.compile(
    r"(?:pre_model_load_memory|min_per_gpu_memory|min_available_device_memory)=([\d.]{1,24})"
    r".{0,20}?local_(?:gpu|device)_memory=([\d.]{1,24})"
)
_SLOTS = re.compile(r"Trytoallocate(\d{1,9})tokens")
_LEFT = re.compile(r"Available(?:full|swa|mamba)?(?:tokens)?:(\d{1,9})")
_FRACTION = re.compile(r"mem_fraction_static=(\d?\.\d{1,9})")
_REST = re.compile(rf"total_rest_memory=({SIZE})")
_SEQUENCES = re.compile(r"max_num_seqs\((\d{1,9})\)exceedsavailableMambacacheblocks\((\d{1,9})\)")


def parse_refusal(kind: str, text: str) -> Refusal | None:
    """The refusal of ``kind`` in ``text``; None where it is only part of a program's source."""
    return _PARSERS[kind](text)


def _parse_free(text: str) -> Refusal | None:
    match = _FREE.search(text)
    if match is None:
        return None
    device, free, total, utilization, wanted = match.groups()
    return Refusal(
        "free",
        "vllm",
        device=int(device) if device else None,
        requested=parse_size(wanted),
        total=parse_size(total),
        free=parse_size(f"{free}GiB"),
        utilization=float(utilization),
    )


def _parse_kv(text: str) -> Refusal | None:
    match = _KV.search(text)
    if match is None:
        return None
    tokens, needed, available, fitting = match.groups()
    return Refusal(
        "kv",
        "vllm",
        requested=parse_size(needed),
        available=parse_difference(available),
        wanted=int(tokens) if tokens else None,
        fitting=int(fitting) if fitting else None,
    )


def _parse_tokens(text: str) -> Refusal | None:
    match = _TOKENS.search(text)
    if match is None:
        return None
    return Refusal("tokens", "vllm", wanted=int(match[1]), fitting=int(match[2]))


def _parse_no_kv(text: str) -> Refusal:
    server = "vllm" if text.startswith("Noavailable") else "sglang"
    fraction, rest = _FRACTION.search(text), _REST.search(text)
    return Refusal(
        "no_kv",
        server,
        available=parse_difference(rest[1]) if rest else None,
        utilization=float(fraction[1]) if fraction else None,
    )


def _parse_changed(text: str) -> Refusal | None:
    match = _CHANGED.search(text)
    if match is None:
        return None
    before, after = (
        parse_size(number if number[-1] == "B" else f"{number}bytes") for number in match.groups()
    )
    return Refusal("changed", "vllm", free=before, available=after)


def _parse_warmup(text: str) -> Refusal | None:
    match = _WARMUP.search(text)
    return Refusal("warmup", "vllm", wanted=int(match[1])) if match else None


def _parse_unbalanced(text: str) -> Refusal:
    match = _UNBALANCED.search(text)
    least, local = (
        (parse_size(f"{number}GiB") for number in match.groups()) if match else (None,) * 2
    )
    return Refusal("unbalanced", "sglang", free=least, available=local)


def _parse_slots(text: str) -> Refusal:
    server = "tgi" if text.startswith("Notenough") else "sglang"
    wanted = _SLOTS.search(text)
    left = [int(match[1]) for match in _LEFT.finditer(text)]
    return Refusal(
        "slots",
        server,
        wanted=int(wanted[1]) if wanted else None,
        fitting=min(left, default=None),
    )


def _parse_sequences(text: str) -> Refusal | None:
    match = _SEQUENCES.search(text)
    if match is None:
        return None
    return Refusal("sequences", "vllm", wanted=int(match[1]), fitting=int(match[2]))


_PARSERS: dict[str, Callable[[str], Refusal | None]] = {
    "free": _parse_free,
    "kv": _parse_kv,
    "tokens": _parse_tokens,
    "no_kv": _parse_no_kv,
    "changed": _parse_changed,
    "warmup": _parse_warmup,
    "unbalanced": _parse_unbalanced,
    "slots": _parse_slots,
    "sequences": _parse_sequences,
}
