"""Why Slurm, a kubelet or Ray ended a program for lack of host memory, and what helps there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from memscope.analysis.diagnosis.explanation import Advice, Explanation
from memscope.analysis.diagnosis.log.host import NOT_THE_DEVICE, less_host_memory
from memscope.analysis.diagnosis.situation import torch_size
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.node import NodeMessage
from memscope.interop.oom_log.sizes import Size
from memscope.text import clean

SLURM_JOB = "SLURM_JOB_ID"
_NAME_CHARACTERS = 80


def explain_node(message: NodeMessage, context: LogContext) -> Explanation:
    """The explanation of one message."""
    write, help_, unknown = _KINDS[message.kind]
    return Explanation(
        diagnosis="not_device_memory",
        why=f"Host memory, not the device: {write(message)}",
        amounts=_amounts(message),
        help=(*help_(message), *less_host_memory()),
        no_help=NOT_THE_DEVICE,
        unknown=(*unknown(message, context), "what it was held for"),
    )


def _amounts(message: NodeMessage) -> dict[str, int]:
    sizes = {"total": message.total, "free": message.free, "allocated": message.allocated}
    amounts = {name: size.bytes for name, size in sizes.items() if size is not None}
    if message.total is not None and message.share is not None:
        amounts["limit"] = int(message.total.bytes * message.share)
    return amounts


def _name(message: NodeMessage, otherwise: str) -> str:
    return clean(message.detail, _NAME_CHARACTERS) or otherwise


def _size(size: Size) -> str:
    return torch_size(size.bytes)


def _why_slurm(message: NodeMessage) -> str:
    name = _name(message, "a task of the job" if not message.job else f"job {message.job}")
    return f"{name} was killed at the memory limit that Slurm had set for the job."


def _help_slurm(message: NodeMessage) -> Iterator[Advice]:
    yield Advice("sbatch --mem=... or --mem-per-cpu=... higher", "what the job may use of the host")


def _unknown_slurm(message: NodeMessage, context: LogContext) -> Iterator[str]:
    job = message.job or context.options.get(SLURM_JOB, "JOB")
    columns = "JobID,State,ReqMem,MaxRSS"
    yield f"the limit, and what was held: sacct -j {job} --format={columns}"


def _why_evicted(message: NodeMessage) -> str:
    free = ""
    if message.free is not None and message.limit is not None:
        free = f" ({_size(message.free)} left, the kubelet keeps {_size(message.limit)})"
    held = ""
    if message.allocated is not None:
        name = _name(message, "it")
        held = f" Its container {name} held {_size(message.allocated)}"
        if message.promised is not None:
            held += f" and had requested {_size(message.promised)}"
        held += "."
    return f"the node ran low on it{free}, and its kubelet evicted the pod.{held}"


def _help_evicted(message: NodeMessage) -> Iterator[Advice]:
    what = f"it held {_size(message.allocated)}: " if message.allocated else ""
    reason = f"{what}pods above their request go first"
    yield Advice("resources.requests.memory at what it needs", reason)
    yield Advice("a node with more memory, fewer pods on it", "all pods together filled it")


def _unknown_evicted(message: NodeMessage, context: LogContext) -> Iterator[str]:
    yield "what the other pods held: kubectl top pods -A --sort-by=memory"


def _why_ray(message: NodeMessage) -> str:
    name = _name(message, "a worker")
    held = f", which held {_size(message.allocated)}" if message.allocated else ""
    if message.total is None or message.free is None:
        return f"the node ran low on it, and Ray's memory monitor killed {name}{held}."
    used = f"{_size(message.total - message.free)} of {_size(message.total)} was in use"
    above = f", more than the {message.share:g} of it that Ray allows" if message.share else ""
    return f"{used} on the node{above}, and Ray's memory monitor killed {name}{held}."


def _help_ray(message: NodeMessage) -> Iterator[Advice]:
    yield Advice("fewer tasks or actors at once", "num_cpus= or memory= of each higher")
    yield Advice("a node or container with more memory", "the monitor counts all on it")
    was = f"it was {message.share:g}; " if message.share else ""
    reason = f"{was}set before `ray start`; at 1 the kernel kills instead"
    yield Advice("RAY_memory_usage_threshold higher", reason)


def _unknown_ray(message: NodeMessage, context: LogContext) -> Iterator[str]:
    address = f" -ip {message.address}" if message.address else ""
    yield f"what else was on the node: ray logs raylet.out{address} lists its 10 largest"


_Unknown = Callable[[NodeMessage, LogContext], Iterator[str]]
_KINDS: dict[
    str,
    tuple[Callable[[NodeMessage], str], Callable[[NodeMessage], Iterator[Advice]], _Unknown],
] = {
    "slurm": (_why_slurm, _help_slurm, _unknown_slurm),
    "evicted": (_why_evicted, _help_evicted, _unknown_evicted),
    "ray": (_why_ray, _help_ray, _unknown_ray),
}
