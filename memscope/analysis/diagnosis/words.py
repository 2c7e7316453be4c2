"""One paragraph for each diagnosis: what was requested, what was there, and what follows."""

from __future__ import annotations

from collections.abc import Callable

from memscope.analysis.diagnosis.explanation import Diagnosis
from memscope.analysis.diagnosis.failed_request import FailedRequest
from memscope.interop.oom_log.formats.torch_message import TorchKind
from memscope.units import torch_size

_LARGEST_CARD_BYTES = 1 << 40
_NO_ROOM = "Usually the pool of torch or of the server has left it no room on the card."
_WITHOUT_NUMBERS = {
    TorchKind.BARE: (
        "The log names an out-of-memory error but gives no numbers. Either its message is cut "
        "off, or the error came from outside torch's allocator, which always prints numbers."
    ),
    TorchKind.HIDDEN: (
        "A hidden out-of-memory error: with expandable segments, torch fails with this assert or "
        "driver error when the driver has no more pages to map. It prints no numbers."
    ),
    TorchKind.RETRY: (
        "The log shows allocations that failed once and were tried again after torch had given "
        "its cache back. It does not show that one failed for good."
    ),
}


def write_why(diagnosis: Diagnosis, request: FailedRequest) -> str:
    """The paragraph for ``diagnosis``."""
    return _WORDS[diagnosis](request)


def _asked(request: FailedRequest) -> str:
    return f"{torch_size(request.wanted_bytes)} was requested on {request.place}"


def _room(request: FailedRequest) -> str:
    room = request.balance.room
    return torch_size(room.bytes) if room else "an unknown amount"


def _fragmentation(request: FailedRequest) -> str:
    cached, room = request.balance.cached_bytes or 0, request.balance.room
    where = "left of the memory fraction" if request.balance.is_capped else "free"
    both = torch_size(cached + (room.bytes if room else 0))
    return (
        f"Fragmentation: {_asked(request)}. {_room(request)} was {where} and "
        f"{torch_size(cached)} was unused in torch's cache, {both} together, but no single block "
        "was large enough."
    )


def _shortage(request: FailedRequest) -> str:
    message, balance = request.message, request.balance
    allocated = message.allocated.bytes if message.allocated else 0
    live = torch_size(max(allocated - balance.private_free_bytes, 0))
    if balance.room is None:
        return (
            f"A real shortage: {_asked(request)}, and tensors held {live}. Together that is more "
            "than the device has."
        )
    cached = ""
    if message.reserved is not None or message.kind is TorchKind.MPS:
        cached = f" and {torch_size(balance.cached_bytes or 0)} was unused in torch's cache"
    missing = balance.missing_bytes or 0
    if request.is_loading and missing:
        return (
            f"The model does not fit: while its weights were loaded, {_asked(request)}. "
            f"{_room(request)} was free{cached}, and tensors held {live}. This one allocation "
            f"lacked {torch_size(missing)}; the rest of the model was still to come."
        )
    lacks = (
        f"{torch_size(missing)} was missing"
        if missing
        else "that is hardly more than the request, and the driver gives whole pages"
    )
    return (
        f"A real shortage: {_asked(request)}. {_room(request)} was free{cached}; {lacks}. "
        f"Tensors held {live}."
    )


def _memory_fraction(request: FailedRequest) -> str:
    message = request.message
    limit, held = message.limit, message.reserved or message.allocated
    assert limit is not None
    assert held is not None
    if message.kind is TorchKind.MPS:
        return (
            f"A limit ran out: {_asked(request)}. Torch may use {torch_size(limit.bytes)}, and "
            f"{torch_size(held.bytes)} was in use."
        )
    free = ""
    if message.free:
        free = f" The card itself had {torch_size(message.free.bytes)} free."
    return (
        f"A memory fraction ran out: {_asked(request)}. Torch may use {torch_size(limit.bytes)} "
        f"and held {torch_size(held.bytes)}, so {_room(request)} was left.{free}"
    )


def _outside(request: FailedRequest) -> str:
    balance, message = request.balance, request.message
    free = torch_size(message.free.bytes) if message.free else "little"
    if balance.others_bytes is None:
        held = torch_size(balance.outside_bytes or 0)
        held = f"Other programs, or libraries outside torch, held {held}"
    else:
        held = f"Other programs and the driver held {torch_size(balance.others_bytes)}"
    if balance.own_outside_bytes is not None:
        held += f", this program outside torch {torch_size(balance.own_outside_bytes)}"
    if message.reserved is not None:
        held += f", torch {torch_size(message.reserved.bytes)}"
    return f"Memory outside torch: {_asked(request)}, and {free} was free. {held}."


def _pending_frees(request: FailedRequest) -> str:
    return (
        f"Pending frees: {_asked(request)}. {_room(request)} was free. The program had already "
        f"freed another {torch_size(request.balance.pending_bytes)}, but a different stream still "
        "used that memory."
    )


def _private_pools(request: FailedRequest) -> str:
    balance = request.balance
    return (
        f"Private pools: {_asked(request)}. {_room(request)} was free on the device and "
        f"{torch_size(balance.cached_bytes or 0)} in torch's common cache. Another "
        f"{torch_size(balance.private_free_bytes)} was free inside private pools (CUDA graphs, "
        "MemPool), which nothing else can use."
    )


def _not_device_memory(request: FailedRequest) -> str:
    if request.message.kind is TorchKind.HOST:
        size = f" of {torch_size(request.wanted_bytes)}" if request.wanted_bytes else ""
        return f"Host memory ran out, not GPU memory: an allocation{size} in main memory failed."
    return (
        f"Not device memory: {_asked(request)}, and {_room(request)} was free, more than enough. "
        "Something else refused: host memory, a limit of the driver or the container, a MIG or "
        "vGPU slice, or a CUDA context that an earlier error had broken."
    )


def _oversubscribed(request: FailedRequest) -> str:
    message = request.message
    held = max(size.bytes for size in (message.reserved, message.allocated) if size is not None)
    total = message.total.bytes if message.total else 0
    return (
        f"Oversubscribed: torch held {torch_size(held)} on {request.place}, "
        f"{torch_size(max(held - total, 0))} more than it has. The driver was spilling to system "
        "memory, which is slow (Windows and WSL do this), before the request for "
        f"{torch_size(request.wanted_bytes)} failed."
    )


def _request_too_large(request: FailedRequest) -> str:
    message = request.message
    if message.is_beyond_exabyte:
        return (
            "A request too large for any device: more than an exabyte was requested. A shape or "
            "an index was wrong, often a negative number or a tensor read in the wrong order."
        )
    total = message.total.bytes if message.total else 1
    times = f"{request.wanted_bytes / max(total, 1):.1f} times its memory"
    return (
        f"A request too large: {_asked(request)}, {times}. A shape is wrong; the card is not full."
    )


def _nvml_unavailable(request: FailedRequest) -> str:
    return (
        "A hidden out-of-memory error: an allocation failed, and then the NVML query for torch's "
        "error message failed too. This happens on MIG slices, in containers without nvidia-smi "
        "and on Tegra. The numbers are lost."
    )


def _unknown(request: FailedRequest) -> str:
    message = request.message
    if request.is_library:
        failed = "A library outside torch's allocator ran out of memory."
        if not request.wanted_bytes:
            failed = (
                "The driver, or a library outside torch's allocator, ran out of memory and prints "
                "no numbers."
            )
        return f"{failed} {_NO_ROOM} {_known(request)}".strip()
    if message.kind in _WITHOUT_NUMBERS:
        return f"{_WITHOUT_NUMBERS[message.kind]} {_known(request)}".strip()
    if message.is_cut and message.kind is TorchKind.CACHING:
        return (
            f"The message is cut short. {_known(request)} The text does not say what was allocated "
            "(torch 2.3.0 cuts it after the word GPU)."
        )
    return f"The text does not say enough for a diagnosis. {_known(request)}"


def _known(request: FailedRequest) -> str:
    message = request.message
    if not request.wanted_bytes:
        return ""
    parts = [f"{torch_size(request.wanted_bytes)} was requested"]
    if message.total is not None:
        parts.append(f"the device has {torch_size(message.total.bytes)}")
    if message.free is not None:
        parts.append(f"{torch_size(message.free.bytes)} was free")
    if message.total is None and request.wanted_bytes > _LARGEST_CARD_BYTES:
        parts.append("more than any card has: look at the shape")
    return f"{', '.join(parts)}."


_WORDS: dict[Diagnosis, Callable[[FailedRequest], str]] = {
    Diagnosis.FRAGMENTATION: _fragmentation,
    Diagnosis.SHORTAGE: _shortage,
    Diagnosis.MEMORY_FRACTION: _memory_fraction,
    Diagnosis.OUTSIDE: _outside,
    Diagnosis.PENDING_FREES: _pending_frees,
    Diagnosis.PRIVATE_POOLS: _private_pools,
    Diagnosis.NOT_DEVICE_MEMORY: _not_device_memory,
    Diagnosis.OVERSUBSCRIBED: _oversubscribed,
    Diagnosis.REQUEST_TOO_LARGE: _request_too_large,
    Diagnosis.NVML_UNAVAILABLE: _nvml_unavailable,
    Diagnosis.UNKNOWN: _unknown,
}
