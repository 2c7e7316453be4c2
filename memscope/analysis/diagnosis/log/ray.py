"""Explain workers that Ray's memory monitor killed."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.explanation import Advice, Diagnosis, Explanation
from memscope.analysis.diagnosis.log.linux import NOT_THE_DEVICE, less_host_memory
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.ray import RayMessage
from memscope.text import clean
from memscope.units import torch_size

_NAME_CHARACTERS = 80


def explain(message: RayMessage, context: LogContext) -> Explanation:
    """Explain one kill."""
    address = f" -ip {message.address}" if message.address else ""
    return Explanation(
        diagnosis=Diagnosis.NOT_DEVICE_MEMORY,
        why=f"Host memory ran out, not GPU memory: {_why(message)}",
        sizes_bytes=_sizes_bytes(message),
        help=(*_help(message), *less_host_memory()),
        no_help=NOT_THE_DEVICE,
        unknown=(
            f"what else ran on the node: `ray logs raylet.out{address}` lists the 10 largest",
            "what it used the memory for",
        ),
    )


def _sizes_bytes(message: RayMessage) -> dict[str, int]:
    sizes = {"total": message.total, "free": message.free, "allocated": message.allocated}
    sizes_bytes = {name: size.bytes for name, size in sizes.items() if size is not None}
    if message.total is not None and message.threshold_ratio is not None:
        sizes_bytes["limit"] = int(message.total.bytes * message.threshold_ratio)
    return sizes_bytes


def _why(message: RayMessage) -> str:
    name = clean(message.detail, _NAME_CHARACTERS) or "a worker"
    held = f", which held {torch_size(message.allocated.bytes)}" if message.allocated else ""
    killed = f"Ray's memory monitor killed {name}{held}."
    if message.total is None or message.free is None:
        return f"the node ran low on memory, and {killed}"
    used = torch_size(message.total.bytes - message.free.bytes)
    ratio = message.threshold_ratio
    above = f", above the threshold of {ratio:g} that Ray allows" if ratio else ""
    return f"{used} of {torch_size(message.total.bytes)} was in use on the node{above}. {killed}"


def _help(message: RayMessage) -> Iterator[Advice]:
    yield Advice("fewer tasks or actors at once", "raise num_cpus= or memory= of each")
    yield Advice("a node or container with more memory", "the monitor counts everything on it")
    ratio = message.threshold_ratio
    was = f"it was {ratio:g}; " if ratio else ""
    reason = f"{was}set it before `ray start`; at 1 the kernel kills instead"
    yield Advice("RAY_memory_usage_threshold higher", reason)
