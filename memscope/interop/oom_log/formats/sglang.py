"""SGLang's refusals to start, or to go on, for lack of memory. TGI words one of them alike.

Worded by sglang/srt/model_executor/model_runner.py and sglang/srt/mem_cache/common.py; their "GB"
counts by 1024. Texts come without white space.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from memscope.interop.oom_log.context import Server
from memscope.interop.oom_log.formats.message import Format, Refusal
from memscope.interop.oom_log.sizes import SIZE, parse_difference, parse_size


class SglangKind(StrEnum):
    """Why it refused."""

    NO_KV = "sglang_no_kv"  # the weights take the whole static share
    UNBALANCED = "unbalanced"  # one card of several has less free
    SLOTS = "slots"  # KV cache or request slots ran out while serving


@dataclass(frozen=True, slots=True)
class SglangRefusal(Refusal):
    """One refusal. ``free``: of the card with the least; ``available``: of another card."""

    kind: SglangKind
    server: Server = Server.SGLANG


_UNBALANCED = re.compile(
    r"(?:pre_model_load_memory|min_per_gpu_memory|min_available_device_memory)=([\d.]{1,24})"
    r".{0,20}?local_(?:gpu|device)_memory=([\d.]{1,24})"
)
_SLOTS = re.compile(r"Trytoallocate(\d{1,9})tokens")
_LEFT = re.compile(r"Available(?:full|swa|mamba)?(?:tokens)?:(\d{1,9})")
_FRACTION = re.compile(r"mem_fraction_static=(\d?\.\d{1,9})")
_REST = re.compile(rf"total_rest_memory=({SIZE})")


def _parse(kind: SglangKind, text: str) -> SglangRefusal:
    return _PARSERS[kind](text)


def _parse_no_kv(text: str) -> SglangRefusal:
    share, rest = _FRACTION.search(text), _REST.search(text)
    return SglangRefusal(
        SglangKind.NO_KV,
        available=parse_difference(rest[1]) if rest else None,
        share=float(share[1]) if share else None,
    )


def _parse_unbalanced(text: str) -> SglangRefusal:
    match = _UNBALANCED.search(text)
    least, local = (
        (parse_size(f"{number}GiB") for number in match.groups()) if match else (None,) * 2
    )
    return SglangRefusal(SglangKind.UNBALANCED, free=least, available=local)


def _parse_slots(text: str) -> SglangRefusal:
    wanted = _SLOTS.search(text)
    left = [int(match[1]) for match in _LEFT.finditer(text)]
    return SglangRefusal(
        SglangKind.SLOTS,
        server=Server.TGI if text.startswith("Notenough") else Server.SGLANG,
        wanted_count=int(wanted[1]) if wanted else None,
        fitting_count=min(left, default=None),
    )


_PARSERS: dict[SglangKind, Callable[[str], SglangRefusal]] = {
    SglangKind.NO_KV: _parse_no_kv,
    SglangKind.UNBALANCED: _parse_unbalanced,
    SglangKind.SLOTS: _parse_slots,
}

FORMAT = Format(
    name="sglang",
    message=SglangRefusal,
    needles={
        SglangKind.NO_KV: (
            "Notenoughmemory.Pleasetrytoincrease--mem-fraction",
            "NotenoughGPUmemoryfor",
        ),
        SglangKind.UNBALANCED: ("Thememorycapacityisunbalanced",),
        SglangKind.SLOTS: (
            "Prefilloutofmemory.Trytolower",
            "Decodeoutofmemory.Trytolower",
            "alloc_req_slotsrunsoutofmemory",
            "Outofmemory.Pleasesetasmallernumber",
            "Notenoughmemorytohandle",
        ),
    },
    words=("Not enough", "is unbalanced", "runs out of", "smaller number"),
    parse=_parse,
)
