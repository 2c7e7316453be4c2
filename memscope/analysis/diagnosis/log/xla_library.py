"""Why a library or a program of CUDA found no room beside XLA's pool, and what helps there.

The pool is a share of the card that JAX takes at its start; cuDNN, cuBLAS and compiled programs
need memory outside it (https://docs.jax.dev/en/latest/faq.html, "Why do some CUDA libraries fail to
load/initialize?").
"""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.counsel import WHO_HOLDS_IT
from memscope.analysis.diagnosis.explanation import Advice, Explanation
from memscope.analysis.diagnosis.log.xla import DEFAULT_FRACTION, PREALLOCATE, Pool
from memscope.analysis.diagnosis.situation import torch_size
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.xla import XlaMessage


def explain_xla_library(message: XlaMessage, context: LogContext) -> Explanation:
    """The explanation of one message."""
    pool = Pool(message, context)
    sizes = {"total": message.total, "free": message.free}
    return Explanation(
        diagnosis="unknown",
        why=_why(message),
        amounts={name: size.bytes for name, size in sizes.items() if size is not None},
        help=tuple(_help(pool)),
        no_help=(
            Advice(f"{pool.variable} higher", "leaves less room beside the pool"),
            Advice("smaller batch or sequence", "the pool keeps its size"),
        ),
        unknown=("how much it asked for: no message of a library says so",),
    )


def _why(message: XlaMessage) -> str:
    left = ""
    if message.free is not None and message.total is not None:
        left = f" {torch_size(message.free.bytes)} of {torch_size(message.total.bytes)} was free."
    if message.detail == "cuDNN":
        return (
            "cuDNN did not start. As a rule XLA's pool holds the card and leaves no room beside "
            f"it, where libraries and compiled programs need theirs.{left}"
        )
    return (
        f"Memory outside XLA's pool ran out: {message.detail} found no room on the card. The pool "
        f"holds the rest and lends nothing to it.{left}"
    )


def _help(pool: Pool) -> Iterator[Advice]:
    """A smaller pool: what failed does not get its memory from it."""
    was = pool.fraction or DEFAULT_FRACTION
    source = "it was" if pool.fraction else "JAX's default is"
    lower = f"{was - 0.1:.2f}" if 0.15 < was <= 1 else "lower"
    yield Advice(f"{pool.variable}={lower}", f"or less; {source} {was:g}")
    if pool.context.options.get(PREALLOCATE, "").lower() not in ("false", "0"):
        yield Advice(f"{PREALLOCATE}=false", "the pool then grows as it is needed")
    yield Advice("stop what else runs on the card", WHO_HOLDS_IT)
    if pool.message.detail == "cuDNN":
        yield Advice("compare the versions of jaxlib and cuDNN", "where memory was free")
