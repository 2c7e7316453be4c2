"""Explain out-of-memory errors of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.advice import NOT_TORCH, WHO_HOLDS_IT
from memscope.analysis.diagnosis.explanation import Advice, Diagnosis, Explanation
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.onnxruntime import OnnxRuntimeMessage
from memscope.units import torch_size

_LARGEST_CARD_BYTES = 1 << 40


def explain(message: OnnxRuntimeMessage, context: LogContext) -> Explanation:
    """Explain one message."""
    diagnosis = _decide(message)
    return Explanation(
        diagnosis=diagnosis,
        why=_why(diagnosis, message),
        sizes_bytes=message.sizes_bytes,
        help=tuple(_help(diagnosis)),
        no_help=(NOT_TORCH,),
        unknown=("what its arena held, and whether on the device or on the host",),
    )


def _decide(message: OnnxRuntimeMessage) -> Diagnosis:
    if message.requested is not None and message.requested.bytes > _LARGEST_CARD_BYTES:
        return Diagnosis.REQUEST_TOO_LARGE
    return Diagnosis.UNKNOWN if message.free is None else Diagnosis.MEMORY_FRACTION


def _why(diagnosis: Diagnosis, message: OnnxRuntimeMessage) -> str:
    wanted = torch_size(message.requested.bytes) if message.requested else "memory"
    if diagnosis is Diagnosis.REQUEST_TOO_LARGE:
        return (
            f"A request too large: {wanted} was requested from ONNX Runtime's arena. "
            "A shape is wrong."
        )
    if message.free is not None:
        return (
            f"ONNX Runtime reached its own limit: its arena was asked for {wanted}, and "
            f"{torch_size(message.free.bytes)} of gpu_mem_limit was left."
        )
    return (
        f"ONNX Runtime ran out of memory: its arena was asked for {wanted}, and the device gave "
        "it no more."
    )


def _help(diagnosis: Diagnosis) -> Iterator[Advice]:
    if diagnosis is Diagnosis.REQUEST_TOO_LARGE:
        yield Advice("check the shapes of the inputs", "no card has that much memory")
        return
    if diagnosis is Diagnosis.MEMORY_FRACTION:
        yield Advice("gpu_mem_limit higher", "an option of the CUDA provider; this limit ran out")
    else:
        yield Advice(
            "gpu_mem_limit of each session", "keeps other sessions from taking the whole card"
        )
    yield Advice("arena_extend_strategy=kSameAsRequested", "the arena does not double as it grows")
    yield Advice("cudnn_conv_use_max_workspace=0", "smaller workspaces of convolutions; slower")
    yield Advice("smaller batch or input", "smaller activations")
    yield Advice("stop what else runs on the card", WHO_HOLDS_IT)
