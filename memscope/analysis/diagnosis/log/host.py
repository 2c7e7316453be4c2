"""Why a program ended for lack of host memory, as the kernel, Kubernetes or torch tells it."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.explanation import Advice, Explanation
from memscope.analysis.diagnosis.situation import torch_size
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.host import HostMessage
from memscope.text import clean

_NAME_CHARACTERS = 40
NOT_THE_DEVICE = (
    Advice("PYTORCH_CUDA_ALLOC_CONF=...", "it is not device memory"),
    Advice("another GPU", "it is not device memory"),
)


def explain_host(message: HostMessage, context: LogContext) -> Explanation:
    """The explanation of one message."""
    return _full_shm() if message.kind == "shm" else _kill(message, context)


def _kill(message: HostMessage, context: LogContext) -> Explanation:
    limit = message.limit or (context.accounts.get("host_limit") if message.is_container else None)
    held = message.allocated or context.accounts.get("host_held")
    sizes = {"limit": limit, "allocated": held}
    amounts = {name: size.bytes for name, size in sizes.items() if size is not None}
    return Explanation(
        diagnosis="not_device_memory",
        why=_why(message, amounts.get("limit"), amounts.get("allocated")),
        amounts=amounts,
        help=tuple(_help(message, amounts.get("limit"))),
        no_help=NOT_THE_DEVICE,
        unknown=tuple(_unknown(message, amounts)),
    )


def _why(message: HostMessage, limit: int | None, held: int | None) -> str:
    name = clean(message.detail, _NAME_CHARACTERS) or "the program"
    pid = f" (pid {message.pid})" if message.pid is not None else ""
    where = "when the machine had no memory left"
    if message.is_container:
        where = "at the container's memory limit" + (f" of {torch_size(limit)}" if limit else "")
    had = f"; it held {torch_size(held)}" if held else ""
    return f"Host memory, not the device: {name}{pid} was killed {where}{had}."


def _help(message: HostMessage, limit: int | None) -> Iterator[Advice]:
    if message.is_container:
        was = f"it was {torch_size(limit)}" if limit else "resources.limits.memory"
        yield Advice("a higher memory limit of the container", was)
    else:
        yield Advice("a machine with more memory, fewer programs on it", "all of it was in use")
    yield from less_host_memory()


def less_host_memory() -> Iterator[Advice]:
    """What a program can do to hold less of it."""
    yield Advice("fewer DataLoader workers, a smaller prefetch_factor", "each holds its batches")
    yield Advice("memory-mapped data and weights (safetensors)", "no second copy in host memory")


def _unknown(message: HostMessage, amounts: dict[str, int]) -> Iterator[str]:
    if message.is_container and "limit" not in amounts:
        yield "the limit: `kubectl describe pod` and the line `memory: usage` of dmesg have it"
    if "allocated" not in amounts:
        yield "how much it held: dmesg on its machine has it, as anon-rss"
    yield "what it held it for"


def _full_shm() -> Explanation:
    return Explanation(
        diagnosis="not_device_memory",
        why=(
            "Shared memory, not the device: /dev/shm was full, through which DataLoader workers "
            "hand their batches over. A container has 64 MiB of it unless it is told otherwise."
        ),
        help=(
            Advice("docker run --shm-size=8g, or --ipc=host", "a larger /dev/shm"),
            Advice(
                "Kubernetes: an emptyDir of medium Memory at /dev/shm",
                "it counts against the pod's memory limit",
            ),
            Advice("fewer DataLoader workers, a smaller prefetch_factor", "less is in it at once"),
            Advice("num_workers=0", "uses none of it; slower"),
        ),
        no_help=NOT_THE_DEVICE,
        unknown=("how large it was: df -h /dev/shm",),
    )
