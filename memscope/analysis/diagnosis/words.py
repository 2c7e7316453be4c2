"""One paragraph for the incident: what was asked, what was there, and what follows."""

from __future__ import annotations

from collections.abc import Callable

from memscope.analysis.diagnosis.situation import Situation, torch_size

_LARGEST_CARD_BYTES = 1 << 40
_NO_ROOM = "As a rule the pool of torch or of the server had left it no room on the card."
_SILENT = {
    "bare": (
        "The log names an out-of-memory error without any number: its message is cut, or it came "
        "from beside torch's allocator, which alone prints numbers."
    ),
    "library": (
        "The driver, or a library beside torch's allocator, ran out and prints no number. "
        f"{_NO_ROOM}"
    ),
    "library that asked": f"A library beside torch's allocator ran out. {_NO_ROOM}",
    "disguise": (
        "An out-of-memory error in disguise: under expandable segments torch trips over this "
        "assert or driver error when the driver has no more pages to map. It prints no numbers."
    ),
    "retry": (
        "The log shows allocations that failed once and were tried again after torch gave its "
        "cache back; it does not show that one failed for good."
    ),
}


def write_why(diagnosis: str, situation: Situation) -> str:
    """The paragraph for ``diagnosis``."""
    return _WORDS[diagnosis](situation)


def _asked(situation: Situation) -> str:
    return f"{situation.place} was asked for {torch_size(situation.wanted)}"


def _room(situation: Situation) -> str:
    room = situation.balance.room
    return torch_size(room.bytes) if room else "an unknown amount"


def _fragmentation(situation: Situation) -> str:
    cached, room = situation.balance.cached or 0, situation.balance.room
    where = "left of the memory fraction" if situation.balance.is_capped else "free"
    both = torch_size(cached + (room.bytes if room else 0))
    return (
        f"Fragmentation: {_asked(situation)}. {_room(situation)} was {where} and "
        f"{torch_size(cached)} lay unused in torch's cache, {both} together, but no one block "
        "was large enough."
    )


def _shortage(situation: Situation) -> str:
    message, balance = situation.message, situation.balance
    live = max((message.allocated.bytes if message.allocated else 0) - balance.private_free, 0)
    if balance.room is None:
        return (
            f"A real shortage: {_asked(situation)}, and tensors held {torch_size(live)}. The two "
            "are more than the device has, whatever was free."
        )
    if message.reserved is None and message.kind != "mps":
        cached = ""
    else:
        cached = f" and {torch_size(balance.cached or 0)} lay unused in torch's cache"
    missing = balance.missing or 0
    if situation.is_loading and missing:
        return (
            f"The model does not fit: while its weights were read, {_asked(situation)}, "
            f"{_room(situation)} was free{cached}, and tensors held {torch_size(live)}. "
            f"{torch_size(missing)} is what this one allocation lacked; the rest of the model was "
            "still to come."
        )
    lacks = (
        f"{torch_size(missing)} was missing"
        if missing
        else "hardly more than the request, and the driver gives whole pages"
    )
    return (
        f"A real shortage: {_asked(situation)}. {_room(situation)} was free{cached}; {lacks}. "
        f"Tensors held {torch_size(live)}."
    )


def _memory_fraction(situation: Situation) -> str:
    message = situation.message
    limit, held = message.limit, message.reserved or message.allocated
    assert limit is not None
    assert held is not None
    if message.kind == "mps":
        return (
            f"A limit ran out: {_asked(situation)}. torch may use {torch_size(limit.bytes)} and "
            f"{torch_size(held.bytes)} was in use."
        )
    free = (
        f", while the card itself had {torch_size(message.free.bytes)} free" if message.free else ""
    )
    return (
        f"A memory fraction ran out: {_asked(situation)}. torch may use "
        f"{torch_size(limit.bytes)} and held {torch_size(held.bytes)}, so {_room(situation)} was "
        f"left{free}."
    )


def _outside(situation: Situation) -> str:
    balance, message = situation.balance, situation.message
    free = torch_size(message.free.bytes) if message.free else "little"
    if balance.others is None:
        held = f"other programs, or libraries beside torch, held {torch_size(balance.outside or 0)}"
    else:
        held = f"other programs and the driver held {torch_size(balance.others)}"
    if balance.own_outside is not None:
        held += f", this program outside torch {torch_size(balance.own_outside)}"
    if message.reserved is not None:
        held += f", torch {torch_size(message.reserved.bytes)}"
    return f"Memory outside torch: {_asked(situation)} and had {free} free; {held}."


def _pending_frees(situation: Situation) -> str:
    return (
        f"Pending frees: {_asked(situation)}. {_room(situation)} was free, and "
        f"{torch_size(situation.balance.pending)} had been freed by the program but was still "
        "in use by another stream, so that it could not be given out."
    )


def _private_pools(situation: Situation) -> str:
    balance = situation.balance
    return (
        f"Private pools: {_asked(situation)}. {_room(situation)} was free on the device and "
        f"{torch_size(balance.cached or 0)} in torch's common cache; "
        f"{torch_size(balance.private_free)} was free inside private pools (CUDA graphs, "
        "MemPool), which nothing else may use."
    )


def _not_device_memory(situation: Situation) -> str:
    message = situation.message
    if message.kind == "host":
        wanted = f" of {torch_size(situation.wanted)}" if situation.wanted else ""
        return f"Host memory, not the device: an allocation{wanted} in main memory was refused."
    return (
        f"Not device memory: {_asked(situation)} and had {_room(situation)} free, more than "
        "enough. Something else refused: host memory, a limit of the driver, of the container or "
        "of a MIG or vGPU slice, or a CUDA context that an earlier error had broken."
    )


def _oversubscribed(situation: Situation) -> str:
    message = situation.message
    held = max(size.bytes for size in (message.reserved, message.allocated) if size is not None)
    total = message.total.bytes if message.total else 0
    return (
        f"Oversubscribed: torch held {torch_size(held)} on {situation.place}, "
        f"{torch_size(max(held - total, 0))} more than it has. The driver had been spilling to "
        "system memory (Windows and WSL do), slowly, before the request for "
        f"{torch_size(situation.wanted)} failed."
    )


def _request_too_large(situation: Situation) -> str:
    message = situation.message
    if message.is_beyond_exabyte:
        return (
            "A request too large for any device: more than an exabyte was asked for. A shape or "
            "an index was garbage, often a negative number or a tensor read out of order."
        )
    total = message.total.bytes if message.total else 1
    times = f"{situation.wanted / max(total, 1):.1f} times all that it has"
    return f"A request too large: {_asked(situation)}, {times}. A wrong shape, not a full card."


def _nvml_unavailable(situation: Situation) -> str:
    return (
        "An out-of-memory error in disguise: an allocation failed, and the NVML query with which "
        "torch decorates the message was refused, as on MIG slices, in containers without "
        "nvidia-smi and on Tegra. The numbers were lost with it."
    )


def _unknown(situation: Situation) -> str:
    message = situation.message
    if message.kind in _SILENT:
        if situation.is_library:
            asked = " that asked" if situation.wanted else ""
            return f"{_SILENT[f'library{asked}']} {_known(situation)}".strip()
        return f"{_SILENT[message.kind]} {_known(situation)}".strip()
    if message.is_cut and message.kind == "torch":
        return (
            f"The message is cut short. {_known(situation)} What was allocated is not in the text "
            "(torch 2.3.0 cuts it after the word GPU)."
        )
    return f"The text does not say enough for a diagnosis. {_known(situation)}"


def _known(situation: Situation) -> str:
    message = situation.message
    if not situation.wanted:
        return ""
    words = [f"{torch_size(situation.wanted)} was asked for"]
    if message.total is not None:
        words.append(f"the device has {torch_size(message.total.bytes)}")
    if message.free is not None:
        words.append(f"{torch_size(message.free.bytes)} was free")
    if message.total is None and situation.wanted > _LARGEST_CARD_BYTES:
        words.append("more than any card has: look at the shape")
    return f"{', '.join(words)}."


_WORDS: dict[str, Callable[[Situation], str]] = {
    "fragmentation": _fragmentation,
    "shortage": _shortage,
    "memory_fraction": _memory_fraction,
    "outside": _outside,
    "pending_frees": _pending_frees,
    "private_pools": _private_pools,
    "not_device_memory": _not_device_memory,
    "oversubscribed": _oversubscribed,
    "request_too_large": _request_too_large,
    "nvml_unavailable": _nvml_unavailable,
    "unknown": _unknown,
}
