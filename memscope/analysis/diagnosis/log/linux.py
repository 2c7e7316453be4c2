"""Explain programs that the Linux kernel killed for lack of memory, and a full /dev/shm."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.explanation import Advice, Diagnosis, Explanation
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.linux import LinuxKind, LinuxMessage
from memscope.text import clean
from memscope.units import torch_size

_NAME_CHARACTERS = 40
NOT_THE_DEVICE = (
    Advice("PYTORCH_CUDA_ALLOC_CONF=...", "it is not device memory"),
    Advice("another GPU", "it is not device memory"),
)


def explain(message: LinuxMessage, context: LogContext) -> Explanation:
    """Explain one message."""
    if message.kind is LinuxKind.SHM_FULL:
        return _explain_full_shm()
    limit = message.limit or (context.accounts.get("host_limit") if message.is_container else None)
    held = message.allocated or context.accounts.get("host_held")
    sizes = {"limit": limit, "allocated": held}
    sizes_bytes = {name: size.bytes for name, size in sizes.items() if size is not None}
    limit_bytes = sizes_bytes.get("limit")
    return Explanation(
        diagnosis=Diagnosis.NOT_DEVICE_MEMORY,
        why=_why(message, limit_bytes, sizes_bytes.get("allocated")),
        sizes_bytes=sizes_bytes,
        help=tuple(_help(message, limit_bytes)),
        no_help=NOT_THE_DEVICE,
        unknown=tuple(_unknown(message, sizes_bytes)),
    )


def less_host_memory() -> Iterator[Advice]:
    """How a program can use less host memory."""
    yield Advice("fewer DataLoader workers, a smaller prefetch_factor", "each holds its batches")
    yield Advice("memory-mapped data and weights (safetensors)", "no second copy in host memory")


def _why(message: LinuxMessage, limit_bytes: int | None, held_bytes: int | None) -> str:
    name = clean(message.detail, _NAME_CHARACTERS) or "the program"
    pid = f" (pid {message.pid})" if message.pid is not None else ""
    reason = "because the machine had no memory left"
    if message.is_container:
        limit = f" of {torch_size(limit_bytes)}" if limit_bytes else ""
        reason = f"at the container's memory limit{limit}"
    held = f" It held {torch_size(held_bytes)}." if held_bytes else ""
    return f"Host memory ran out, not GPU memory: {name}{pid} was killed {reason}.{held}"


def _help(message: LinuxMessage, limit_bytes: int | None) -> Iterator[Advice]:
    if message.is_container:
        was = f"it was {torch_size(limit_bytes)}" if limit_bytes else "resources.limits.memory"
        yield Advice("a higher memory limit of the container", was)
    else:
        yield Advice("a machine with more memory, fewer programs on it", "all of it was in use")
    yield from less_host_memory()


def _unknown(message: LinuxMessage, sizes_bytes: dict[str, int]) -> Iterator[str]:
    if message.is_container and "limit" not in sizes_bytes:
        yield "the limit: see `kubectl describe pod`, or the line `memory: usage` in dmesg"
    if "allocated" not in sizes_bytes:
        yield "how much it held: see anon-rss in dmesg on that machine"
    yield "what it used the memory for"


def _explain_full_shm() -> Explanation:
    return Explanation(
        diagnosis=Diagnosis.NOT_DEVICE_MEMORY,
        why=(
            "Shared memory ran out, not GPU memory: /dev/shm was full. DataLoader workers pass "
            "their batches through it. A container has 64 MiB of it by default."
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
