"""Counters of torch's caching allocator. They lie in host memory.

Reading them calls no CUDA function, so any thread may do it, even during graph capture.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder


# The name of a reading → where it stands in torch's nested counters.
_BYTES = {
    "allocated_bytes": ("allocated_bytes", "current"),
    "reserved_bytes": ("reserved_bytes", "current"),
    "active_bytes": ("active_bytes", "current"),
    "requested_bytes": ("requested_bytes", "current"),
    "inactive_split_bytes": ("inactive_split_bytes", "current"),
    "peak_allocated_bytes": ("allocated_bytes", "peak"),
    "peak_reserved_bytes": ("reserved_bytes", "peak"),
}
_COUNTS = {
    "device_mallocs": "num_device_alloc",
    "device_frees": "num_device_free",
    "alloc_retries": "num_alloc_retries",
    "ooms": "num_ooms",
}


def read_counters(torch: Any, device: int) -> dict[str, int]:
    """Bytes and counts of one device, by the names in this file. Old versions of torch lack some.

    torch._C._cuda_memoryStats only builds the nested dict; torch.cuda.memory_stats also flattens
    it, at several times the cost.
    """
    read = getattr(torch._C, "_cuda_memoryStats", None)
    if read is None:
        read = torch.cuda.memory_stats_as_nested_dict
    nested = read(device)
    counters = {name: int(nested[key]["all"][which]) for name, (key, which) in _BYTES.items()}
    return counters | {name: int(nested[key]) for name, key in _COUNTS.items() if key in nested}


class AllocatorProbe:
    """Records ``torch.*`` for each device that torch has used.

    It neither imports nor initialises torch: until the program does, there is nothing to read.
    """

    name = "allocator"

    def __call__(self, recorder: Recorder) -> None:
        torch = cuda_torch()
        if torch is None:
            return
        for device in range(torch.cuda.device_count()):
            counters = read_counters(torch, device)
            if not counters["peak_reserved_bytes"]:
                continue
            sample_counters(recorder, counters, device)


def sample_counters(recorder: Recorder, counters: dict[str, int], device: int) -> None:
    """Record each of ``counters`` as a reading of this moment."""
    for name, value in counters.items():
        if name in _BYTES:
            recorder.sample(f"torch.{name}", bytes=value, device=device)
        else:
            recorder.sample(f"torch.{name}", value=value, device=device)


def cuda_torch() -> Any | None:
    """Torch, if the program has imported it and initialised CUDA; else None."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)  # absent while torch is being imported
    return torch if is_initialized is not None and is_initialized() else None
