"""Why memory ran out under XLA, and what helps there: JAX's own settings, none of torch's.

JAX takes a pool of 0.75 of each GPU (https://docs.jax.dev/en/latest/gpu_memory_allocation.html)
and gives its arrays and programs memory from it. TensorFlow has the same allocator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from memscope.analysis.diagnosis.counsel import WHO_HOLDS_IT
from memscope.analysis.diagnosis.explanation import AMOUNTS, Advice, Explanation, Share
from memscope.analysis.diagnosis.situation import torch_size
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.xla import XlaMessage

DEFAULT_FRACTION = 0.75
# More than this share of a card is not to be had: context and libraries take the rest.
HIGHEST_FRACTION = 0.95
_FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


@dataclass(frozen=True, slots=True)
class Pool:
    """XLA's pool at the failure. ``limit``, ``in_use``: bytes; None where the log has no dump."""

    message: XlaMessage
    context: LogContext

    @property
    def limit(self) -> int | None:
        return self._account("xla_limit")

    @property
    def in_use(self) -> int | None:
        return self._account("xla_in_use")

    @property
    def wanted(self) -> int:
        """Bytes asked for."""
        return self.message.requested.bytes if self.message.requested else 0

    @property
    def free(self) -> int | None:
        """Bytes that were free: in the pool, or on the device where it says so."""
        if self.message.free is not None:
            return self.message.free.bytes
        if self.message.total is not None:
            return self.message.total.bytes
        if self.limit is None or self.in_use is None:
            return None
        return max(self.limit - self.in_use, 0)

    @property
    def missing(self) -> int:
        """Bytes that the request lacked, 0 where that is not known."""
        return 0 if self.free is None else max(self.wanted - self.free, 0)

    @property
    def variable(self) -> str:
        """JAX's name of the fraction: only one of the two may be set."""
        return next((name for name in _FRACTIONS if name in self.context.options), _FRACTIONS[1])

    @property
    def fraction(self) -> float | None:
        """The fraction of the card that the log names."""
        return self.context.option(self.variable)

    @property
    def needed_fraction(self) -> float | None:
        """The least fraction that holds what was in use and the request; None if not known."""
        fraction = self.fraction or DEFAULT_FRACTION
        if self.context.xla == "torch_xla" or self.message.kind == "tensorflow":
            return None
        if self.limit is None or self.in_use is None or not 0 < fraction <= 1 or not self.limit:
            return None
        needed = (self.in_use + self.wanted) * fraction / self.limit
        return math.ceil(100 * needed - 1e-9) / 100

    def _account(self, name: str) -> int | None:
        size = self.context.accounts.get(name)
        return None if size is None or self.message.backend == "TPU" else size.bytes


def explain_xla(message: XlaMessage, context: LogContext) -> Explanation:
    """The explanation of one message."""
    pool = Pool(message, context)
    diagnosis = _decide(pool)
    return Explanation(
        diagnosis=diagnosis,
        why=_why(diagnosis, pool),
        device=message.device,
        device_name=_device_name(message),
        amounts=_amounts(pool),
        shares=_shares(pool),
        help=tuple(_help(diagnosis, pool)),
        no_help=tuple(_no_help(pool)),
        unknown=tuple(_unknown(diagnosis, pool)),
    )


def _decide(pool: Pool) -> str:
    if pool.free is None or not pool.wanted or pool.message.kind == "xla_driver":
        return "unknown"
    if pool.wanted <= pool.free:
        return "fragmentation"
    needed = pool.needed_fraction
    is_capped = needed is not None and needed <= HIGHEST_FRACTION
    return "memory_fraction" if is_capped else "shortage"


def _amounts(pool: Pool) -> dict[str, int]:
    sizes = {name: getattr(pool.message, name) for name in AMOUNTS}
    amounts = {name: size.bytes for name, size in sizes.items() if size is not None}
    if pool.limit is not None:
        amounts["limit"] = pool.limit
    if pool.in_use is not None:
        amounts["allocated"] = pool.in_use
    return amounts


def _device_name(message: XlaMessage) -> str:
    return "" if message.device is None else f"GPU {message.device}"


def _shares(pool: Pool) -> tuple[Share, ...]:
    """XLA's pool; none where the log has no dump of it."""
    if pool.limit is None or pool.in_use is None or pool.in_use > pool.limit:
        return ()
    if pool.message.kind == "xla_driver":
        return ()
    parts = (
        Share("in use in XLA's pool", pool.in_use, "#"),
        Share("free in XLA's pool", pool.limit - pool.in_use, "."),
    )
    return tuple(share for share in parts if share.bytes)


def _why(diagnosis: str, pool: Pool) -> str:
    message = pool.message
    place = _device_name(message) or "the device"
    wanted = torch_size(pool.wanted) if pool.wanted else "memory"
    if message.kind == "xla_compile" and pool.free is not None and pool.wanted:
        return (
            f"A real shortage: the program needs {wanted} and the device has "
            f"{torch_size(pool.free)}, {torch_size(pool.missing)} too little. XLA found out when "
            "it compiled it."
        )
    if message.kind == "xla_driver":
        return (
            f"The driver refused {wanted} that XLA asked for to make its pool of memory: so much "
            "of the card was not free. XLA then tries with less."
        )
    if pool.free is None:
        return (
            f"{_name(message)} ran out: {place} was asked for {wanted}. What was in use and what "
            f"was free is not in the text.{_buffers(message)}"
        )
    if not pool.wanted:
        return (
            f"{_name(message)} ran out: {torch_size(pool.free)} of {place} was free. How much was "
            f"asked for is not in the text.{_buffers(message)}"
        )
    free, where = torch_size(pool.free), "free"
    if pool.limit is not None and message.free is None:
        where = f"left of the {torch_size(pool.limit)} of XLA's pool"
    asked = f"{place} was asked for {wanted}, and {free} was {where}"
    return f"{_REASONS[diagnosis].format(asked=asked)}{_buffers(message)}"


_REASONS = {
    "fragmentation": "Fragmentation: {asked}, but not in one piece.",
    "memory_fraction": (
        "A memory fraction ran out: {asked}. The pool is a fraction of the card, and the rest of "
        "the card is not used."
    ),
    "shortage": "A real shortage: {asked}.",
}


def _name(message: XlaMessage) -> str:
    return "TensorFlow's memory" if message.kind == "tensorflow" else "XLA's memory"


def _buffers(message: XlaMessage) -> str:
    parts = {
        "arguments": message.arguments,
        "outputs": message.outputs,
        "temporaries": message.temporaries,
    }
    told = [f"{torch_size(size.bytes)} of {name}" for name, size in parts.items() if size]
    return f" The program that asked needs {', '.join(told)}." if told else ""


def _help(diagnosis: str, pool: Pool) -> Iterator[Advice]:
    if pool.message.kind == "tensorflow":
        yield Advice("smaller batch or sequence", "activations follow it", pool.missing or None)
        yield Advice("TF_GPU_ALLOCATOR=cuda_malloc_async", "where memory is fragmented")
        yield Advice("TF_FORCE_GPU_ALLOW_GROWTH=true", "where another program needs the card, too")
        return
    if pool.context.xla == "torch_xla":
        yield Advice(
            "smaller batch or sequence, activation checkpointing",
            "smaller temporaries",
            pool.missing or None,
        )
        yield Advice("sharding over more devices", "fewer bytes on each")
        return
    if pool.message.backend != "TPU":
        yield from _raised_fraction(diagnosis, pool)
        yield from _preallocation(diagnosis, pool)
    yield Advice("jax.jit(..., donate_argnums=...)", "outputs reuse arguments", _donated(pool))
    yield Advice(
        "smaller batch or sequence, jax.checkpoint", "smaller temporaries", pool.missing or None
    )
    yield Advice("sharding over more devices", "fewer bytes on each")


def _raised_fraction(diagnosis: str, pool: Pool) -> Iterator[Advice]:
    was = pool.fraction or DEFAULT_FRACTION
    source = "it was" if pool.fraction else "JAX's default is"
    needed = pool.needed_fraction
    if diagnosis == "shortage" or pool.message.kind == "xla_driver" or was >= HIGHEST_FRACTION:
        return
    if diagnosis == "memory_fraction" and needed is not None:
        yield Advice(f"{pool.variable}={needed:.2f}", f"at least; {source} {was:g}", pool.missing)
        return
    yield Advice(f"{pool.variable}={HIGHEST_FRACTION}", f"of the card; {source} {was:g}")


def _preallocation(diagnosis: str, pool: Pool) -> Iterator[Advice]:
    is_off = pool.context.options.get(PREALLOCATE, "").lower() in ("false", "0")
    if pool.message.kind == "xla_driver":
        yield Advice("stop what else runs on the card", WHO_HOLDS_IT)
        lower = f"{pool.variable} lower"
        yield Advice(lower, "so that the pools of all programs fit beside each other")
    if is_off and diagnosis == "fragmentation":
        yield Advice(f"{PREALLOCATE}=true", "one region from the start is split less")
    elif not is_off and diagnosis == "unknown":
        yield Advice(f"{PREALLOCATE}=false", "where another program needs the card, too")


def _donated(pool: Pool) -> int | None:
    """What donated arguments can free: as much as both they and the outputs have."""
    arguments, outputs = pool.message.arguments, pool.message.outputs
    if arguments is None or outputs is None:
        return None
    return min(arguments.bytes, outputs.bytes) or None


def _no_help(pool: Pool) -> Iterator[Advice]:
    if pool.message.kind == "tensorflow" or pool.context.xla == "torch_xla":
        return
    if pool.message.backend == "TPU":
        yield Advice(f"{_FRACTIONS[1]}, {PREALLOCATE}", "read on GPUs only")
    else:
        yield Advice("jax.clear_caches()", "compiled programs go, arrays stay")
        yield Advice(
            "XLA_PYTHON_CLIENT_ALLOCATOR=platform alone", "very slow; arrays stay as large"
        )


def _unknown(diagnosis: str, pool: Pool) -> Iterator[str]:
    if pool.message.backend != "TPU" and pool.limit is None:
        yield "what was in use: with TF_CPP_MIN_LOG_LEVEL=0 the log has the pool's limit and use"
    is_assumed = pool.needed_fraction is not None and not pool.fraction
    if is_assumed and diagnosis in ("memory_fraction", "shortage"):
        yield f"the fraction: not in the log; JAX's default of {DEFAULT_FRACTION} is assumed"
    if pool.message.kind == "tensorflow" or pool.context.xla == "torch_xla":
        yield "which tensors hold it"
    else:
        yield "which arrays hold it: jax.profiler.save_device_memory_profile tells"
