"""Explain CUDA libraries and programs that found no room beside XLA's pool.

JAX takes the pool, a share of the card, when it starts. cuDNN, cuBLAS and compiled programs need
memory outside of it (https://docs.jax.dev/en/latest/faq.html, "Why do some CUDA libraries fail to
load/initialize?").
"""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.advice import WHO_HOLDS_IT
from memscope.analysis.diagnosis.explanation import Advice, Diagnosis, Explanation
from memscope.analysis.diagnosis.log.xla_pool import DEFAULT_FRACTION, PREALLOCATE, XlaPool
from memscope.interop.oom_log.formats.xla import XlaLibrary, XlaMessage
from memscope.units import torch_size


def explain_library(pool: XlaPool) -> Explanation:
    """Explain one message of a library."""
    message = pool.message
    sizes = {"total": message.total, "free": message.free}
    return Explanation(
        diagnosis=Diagnosis.UNKNOWN,
        why=_why(message),
        sizes_bytes={name: size.bytes for name, size in sizes.items() if size is not None},
        help=tuple(_help(pool)),
        no_help=(
            Advice(f"{pool.variable} higher", "leaves less room beside the pool"),
            Advice("smaller batch or sequence", "the pool keeps its size"),
        ),
        unknown=("how much it asked for: libraries do not print it",),
    )


def _why(message: XlaMessage) -> str:
    left = ""
    if message.free is not None and message.total is not None:
        left = f" {torch_size(message.free.bytes)} of {torch_size(message.total.bytes)} was free."
    if message.library is XlaLibrary.CUDNN:
        return (
            "cuDNN did not start. Usually XLA's pool fills the card and leaves no room for "
            f"libraries and compiled programs.{left}"
        )
    return (
        f"Memory outside XLA's pool ran out: {message.library} found no room on the card. XLA's "
        f"pool holds the rest, and memory in the pool cannot be used outside of it.{left}"
    )


def _help(pool: XlaPool) -> Iterator[Advice]:
    """Make the pool smaller: what failed does not get its memory from the pool."""
    was = pool.fraction or DEFAULT_FRACTION
    source = "it was" if pool.fraction else "JAX's default is"
    lower = f"{was - 0.1:.2f}" if 0.15 < was <= 1 else "lower"
    yield Advice(f"{pool.variable}={lower}", f"or less; {source} {was:g}")
    if not pool.context.is_off(PREALLOCATE):
        yield Advice(f"{PREALLOCATE}=false", "the pool then grows as needed")
    yield Advice("stop what else runs on the card", WHO_HOLDS_IT)
    if pool.message.library is XlaLibrary.CUDNN:
        yield Advice("compare the versions of jaxlib and cuDNN", "if memory was free")
