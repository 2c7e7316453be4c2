"""Free bytes in private pools of torch's allocator, which CUDA graphs use.

Torch's counters do not tell pools apart, but its map does. Reading the map calls no CUDA function,
but it holds Python's lock, so it is read seldom, and never if it is large.
"""

from __future__ import annotations

import functools
import inspect
import time
from typing import TYPE_CHECKING, Any

from memscope.facts import Fact
from memscope.probes.pace import TimePace
from memscope.probes.torch.allocator import cuda_torch
from memscope.probes.torch.history import is_history_on

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

LEAST_NS = 1_000_000_000
SHARE = 0.0005
MAX_BLOCKS = 20_000


class PrivatePoolProbe:
    """Records ``torch.private_free_bytes`` and ``torch.private_split_bytes``.

    The latter is the part in partly used segments. ``torch.inactive_split_bytes`` includes it, too.
    """

    name = "private_pools"

    def __init__(self) -> None:
        self._pace = TimePace(SHARE, LEAST_NS)
        self._reason: str | None = None

    def __call__(self, recorder: Recorder) -> None:
        torch, now_ns = cuda_torch(), time.perf_counter_ns()
        if torch is None or not self._pace.is_due(now_ns):
            return
        start_ns = time.thread_time_ns()
        devices = [each for each in range(torch.cuda.device_count()) if _blocks(torch, each)]
        if not devices:
            return
        reason = why_unread(torch, devices)
        if reason is None:
            for device, (free, split) in read_private(torch, devices).items():
                recorder.sample("torch.private_free_bytes", bytes=free, device=device)
                recorder.sample("torch.private_split_bytes", bytes=split, device=device)
        if reason != self._reason:
            self._reason = reason
            recorder.fact(Fact.PRIVATE_POOLS, {"absent": reason})
        self._pace.end_read(now_ns, time.thread_time_ns() - start_ns)


def why_unread(torch: Any, devices: list[int]) -> str | None:
    """Why the map is not read; None if it is."""
    if not _can_leave_out_traces(torch.cuda.memory.memory_snapshot):
        return "the map of torch before 2.11 cannot be read without its traces"
    if is_history_on(torch):
        return "torch's map is not read while its history is on: each block's stack is looked up"
    blocks = sum(_blocks(torch, device) for device in devices)
    if blocks > MAX_BLOCKS:
        return f"torch's map of {blocks:,} blocks is not read while the program runs"
    return None


def read_private(torch: Any, devices: list[int]) -> dict[int, tuple[int, int]]:
    """Device → free bytes in private pools, and the part of them in partly used segments."""
    found = dict.fromkeys(devices, (0, 0))
    for segment in torch._C._cuda_memorySnapshot((0, 0, False))["segments"]:
        device, pool = segment["device"], tuple(segment.get("segment_pool_id", (0, 0)))
        if pool == (0, 0) or device not in found:
            continue
        free, split = found[device]
        unused = segment["total_size"] - segment["active_size"]
        found[device] = free + unused, split + (unused if segment["active_size"] else 0)
    return found


@functools.cache
def _can_leave_out_traces(snapshot: Any) -> bool:
    return "include_traces" in inspect.signature(snapshot).parameters


def _blocks(torch: Any, device: int) -> int:
    """Number of blocks in use, which tells what reading the map costs."""
    read = getattr(torch._C, "_cuda_memoryStats", None) or torch.cuda.memory_stats_as_nested_dict
    nested = read(device)
    return int(nested["active"]["all"]["current"]) if "active" in nested else 0
