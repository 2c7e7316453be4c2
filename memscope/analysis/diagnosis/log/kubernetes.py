"""Explain pods that a kubelet evicted."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.explanation import Advice, Diagnosis, Explanation
from memscope.analysis.diagnosis.log.linux import NOT_THE_DEVICE, less_host_memory
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.kubernetes import EvictedMessage
from memscope.text import clean
from memscope.units import torch_size

_NAME_CHARACTERS = 80


def explain(message: EvictedMessage, context: LogContext) -> Explanation:
    """Explain one eviction."""
    sizes = {"free": message.free, "allocated": message.allocated}
    return Explanation(
        diagnosis=Diagnosis.NOT_DEVICE_MEMORY,
        why=_why(message),
        sizes_bytes={name: size.bytes for name, size in sizes.items() if size is not None},
        help=(*_help(message), *less_host_memory()),
        no_help=NOT_THE_DEVICE,
        unknown=(
            "what the other pods held: kubectl top pods -A --sort-by=memory",
            "what it used the memory for",
        ),
    )


def _why(message: EvictedMessage) -> str:
    free = held = ""
    if message.free is not None and message.limit is not None:
        free = (
            f" ({torch_size(message.free.bytes)} was left, and the kubelet keeps "
            f"{torch_size(message.limit.bytes)} free)"
        )
    if message.allocated is not None:
        name = clean(message.detail, _NAME_CHARACTERS) or "it"
        held = f" Its container {name} held {torch_size(message.allocated.bytes)}"
        if message.promised is not None:
            held += f" and had requested {torch_size(message.promised.bytes)}"
        held += "."
    return (
        "Host memory ran out, not GPU memory: the node ran low on memory"
        f"{free}, and its kubelet evicted the pod.{held}"
    )


def _help(message: EvictedMessage) -> Iterator[Advice]:
    held = f"it held {torch_size(message.allocated.bytes)}: " if message.allocated else ""
    reason = f"{held}pods above their request are evicted first"
    yield Advice("resources.requests.memory at what it needs", reason)
    yield Advice("a node with more memory, fewer pods on it", "all pods together filled it")
