"""Explain out-of-memory errors of JAX, TensorFlow and torch_xla, in their own settings."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.advice import WHO_HOLDS_IT
from memscope.analysis.diagnosis.explanation import Advice, Diagnosis, Explanation, Share, ShareKind
from memscope.analysis.diagnosis.log.xla_library import explain_library
from memscope.analysis.diagnosis.log.xla_pool import (
    DEFAULT_FRACTION,
    FRACTION_VARIABLES,
    HIGHEST_FRACTION,
    PREALLOCATE,
    XlaPool,
)
from memscope.interop.oom_log.context import LogContext, XlaUser
from memscope.interop.oom_log.formats.message import Backend
from memscope.interop.oom_log.formats.xla import XlaKind, XlaMessage
from memscope.units import torch_size


def explain(message: XlaMessage, context: LogContext) -> Explanation:
    """Explain one message."""
    pool = XlaPool(message, context)
    if message.kind is XlaKind.LIBRARY:
        return explain_library(pool)
    diagnosis = _decide(pool)
    return Explanation(
        diagnosis=diagnosis,
        why=_why(diagnosis, pool),
        device=message.device,
        device_name=_device_name(message),
        sizes_bytes=_sizes_bytes(pool),
        shares=_shares(pool),
        help=tuple(_help(diagnosis, pool)),
        no_help=tuple(_no_help(pool)),
        unknown=tuple(_unknown(diagnosis, pool)),
    )


def _decide(pool: XlaPool) -> Diagnosis:
    if pool.free_bytes is None or not pool.wanted_bytes or pool.message.kind is XlaKind.DRIVER:
        return Diagnosis.UNKNOWN
    if pool.wanted_bytes <= pool.free_bytes:
        return Diagnosis.FRAGMENTATION
    needed = pool.needed_fraction
    is_capped = needed is not None and needed <= HIGHEST_FRACTION
    return Diagnosis.MEMORY_FRACTION if is_capped else Diagnosis.SHORTAGE


def _sizes_bytes(pool: XlaPool) -> dict[str, int]:
    sizes_bytes = pool.message.sizes_bytes
    if pool.limit_bytes is not None:
        sizes_bytes["limit"] = pool.limit_bytes
    if pool.in_use_bytes is not None:
        sizes_bytes["allocated"] = pool.in_use_bytes
    return sizes_bytes


def _device_name(message: XlaMessage) -> str:
    return "" if message.device is None else f"GPU {message.device}"


def _shares(pool: XlaPool) -> tuple[Share, ...]:
    """The parts of XLA's pool, () if the log has no dump of it."""
    limit, in_use = pool.limit_bytes, pool.in_use_bytes
    if limit is None or in_use is None or in_use > limit or pool.message.kind is XlaKind.DRIVER:
        return ()
    parts = (
        Share("in use in XLA's pool", in_use, ShareKind.ALLOCATED),
        Share("free in XLA's pool", limit - in_use, ShareKind.FREE),
    )
    return tuple(share for share in parts if share.bytes)


def _why(diagnosis: Diagnosis, pool: XlaPool) -> str:
    message, free_bytes = pool.message, pool.free_bytes
    place = _device_name(message) or "the device"
    wanted = torch_size(pool.wanted_bytes) if pool.wanted_bytes else "memory"
    if message.kind is XlaKind.COMPILE and free_bytes is not None and pool.wanted_bytes:
        return (
            f"A real shortage: the program needs {wanted} and the device has "
            f"{torch_size(free_bytes)}, {torch_size(pool.missing_bytes)} too little. XLA noticed "
            "it at compile time."
        )
    if message.kind is XlaKind.DRIVER:
        return (
            f"XLA asked for {wanted} to make its memory pool, and the driver refused: that much of "
            "the card was not free. XLA then tries again with less."
        )
    if free_bytes is None:
        return (
            f"{_name(message)} ran out: {wanted} was requested on {place}. The text does not say "
            f"how much was in use and how much was free.{_buffers(message)}"
        )
    if not pool.wanted_bytes:
        return (
            f"{_name(message)} ran out: {torch_size(free_bytes)} was free on {place}. The text "
            f"does not say how much was requested.{_buffers(message)}"
        )
    where = "free"
    if pool.limit_bytes is not None and message.free is None:
        where = f"left of the {torch_size(pool.limit_bytes)} in XLA's pool"
    asked = f"{wanted} was requested on {place}, and {torch_size(free_bytes)} was {where}"
    return f"{_REASONS[diagnosis].format(asked=asked)}{_buffers(message)}"


_REASONS = {
    Diagnosis.FRAGMENTATION: "Fragmentation: {asked}, but not in one piece.",
    Diagnosis.MEMORY_FRACTION: (
        "A memory fraction ran out: {asked}. The pool is a fraction of the card; the rest of the "
        "card is not used."
    ),
    Diagnosis.SHORTAGE: "A real shortage: {asked}.",
}


def _name(message: XlaMessage) -> str:
    return "TensorFlow's memory" if message.kind is XlaKind.TENSORFLOW else "XLA's memory"


def _buffers(message: XlaMessage) -> str:
    parts = {
        "arguments": message.arguments,
        "outputs": message.outputs,
        "temporaries": message.temporaries,
    }
    told = [f"{torch_size(size.bytes)} of {name}" for name, size in parts.items() if size]
    return f" The program needs {', '.join(told)}." if told else ""


def _help(diagnosis: Diagnosis, pool: XlaPool) -> Iterator[Advice]:
    if pool.message.kind is XlaKind.TENSORFLOW:
        yield Advice("smaller batch or sequence", "smaller activations", pool.missing_bytes or None)
        yield Advice("TF_GPU_ALLOCATOR=cuda_malloc_async", "if memory is fragmented")
        yield Advice("TF_FORCE_GPU_ALLOW_GROWTH=true", "if another program needs the card, too")
        return
    if pool.context.xla is XlaUser.TORCH_XLA:
        yield Advice(
            "smaller batch or sequence, activation checkpointing",
            "smaller temporaries",
            pool.missing_bytes or None,
        )
        yield Advice("sharding over more devices", "fewer bytes on each")
        return
    if pool.message.backend != Backend.TPU:
        yield from _raised_fraction(diagnosis, pool)
        yield from _preallocation(diagnosis, pool)
    yield Advice("jax.jit(..., donate_argnums=...)", "outputs reuse arguments", _donated(pool))
    yield Advice(
        "smaller batch or sequence, jax.checkpoint",
        "smaller temporaries",
        pool.missing_bytes or None,
    )
    yield Advice("sharding over more devices", "fewer bytes on each")


def _raised_fraction(diagnosis: Diagnosis, pool: XlaPool) -> Iterator[Advice]:
    was = pool.fraction or DEFAULT_FRACTION
    source = "it was" if pool.fraction else "JAX's default is"
    needed = pool.needed_fraction
    is_driver = pool.message.kind is XlaKind.DRIVER
    if diagnosis is Diagnosis.SHORTAGE or is_driver or was >= HIGHEST_FRACTION:
        return
    if diagnosis is Diagnosis.MEMORY_FRACTION and needed is not None:
        yield Advice(
            f"{pool.variable}={needed:.2f}", f"at least; {source} {was:g}", pool.missing_bytes
        )
        return
    yield Advice(f"{pool.variable}={HIGHEST_FRACTION}", f"of the card; {source} {was:g}")


def _preallocation(diagnosis: Diagnosis, pool: XlaPool) -> Iterator[Advice]:
    is_off = pool.context.is_off(PREALLOCATE)
    if pool.message.kind is XlaKind.DRIVER:
        yield Advice("stop what else runs on the card", WHO_HOLDS_IT)
        lower = f"{pool.variable} lower"
        yield Advice(lower, "the pools of all programs then fit on the card")
    if is_off and diagnosis is Diagnosis.FRAGMENTATION:
        yield Advice(f"{PREALLOCATE}=true", "one region from the start is less fragmented")
    elif not is_off and diagnosis is Diagnosis.UNKNOWN:
        yield Advice(f"{PREALLOCATE}=false", "if another program needs the card, too")


def _donated(pool: XlaPool) -> int | None:
    """Bytes that donated arguments can free: what both arguments and outputs take."""
    arguments, outputs = pool.message.arguments, pool.message.outputs
    if arguments is None or outputs is None:
        return None
    return min(arguments.bytes, outputs.bytes) or None


def _no_help(pool: XlaPool) -> Iterator[Advice]:
    if pool.message.kind is XlaKind.TENSORFLOW or pool.context.xla is XlaUser.TORCH_XLA:
        return
    if pool.message.backend == Backend.TPU:
        yield Advice(f"{FRACTION_VARIABLES[1]}, {PREALLOCATE}", "they apply to GPUs only")
    else:
        yield Advice("jax.clear_caches()", "it frees compiled programs, not arrays")
        yield Advice("XLA_PYTHON_CLIENT_ALLOCATOR=platform alone", "very slow; arrays are as large")


def _unknown(diagnosis: Diagnosis, pool: XlaPool) -> Iterator[str]:
    if pool.message.backend != Backend.TPU and pool.limit_bytes is None:
        yield "what was in use: with TF_CPP_MIN_LOG_LEVEL=0 the log shows the pool's limit and use"
    is_assumed = pool.needed_fraction is not None and not pool.fraction
    if is_assumed and diagnosis in (Diagnosis.MEMORY_FRACTION, Diagnosis.SHORTAGE):
        yield f"the fraction: not in the log, so JAX's default of {DEFAULT_FRACTION} is assumed"
    if pool.message.kind is XlaKind.TENSORFLOW or pool.context.xla is XlaUser.TORCH_XLA:
        yield "which tensors hold it"
    else:
        yield "which arrays hold it: see jax.profiler.save_device_memory_profile"
