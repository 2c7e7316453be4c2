"""The machine of a measurement, and the rate of its link."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Sequence
from typing import Any

import torch

from memscope_runners.memory.cuda_device import CudaDevice
from memscope_runners.memory.device import Device

LINK_REPEATS = 3


def describe_machine(device: Device) -> dict[str, Any]:
    """Device, processor, memory and versions, for the JSON of a result."""
    machine = {
        "device": device.name,
        "device_bytes": device.total_bytes,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "host_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "memscope": importlib.metadata.version("memscope-torch"),
    }
    return machine | ({"cuda": torch.version.cuda} if device.kind == "cuda" else {})


def measure_link(device: Device, slabs: Sequence[torch.Tensor]) -> float | None:
    """Bytes a second of copies of the slabs, back to back: the median of some; None on the host.

    Slabs of one size, pinned where they are for the runs that this is to be compared with.
    """
    if not isinstance(device, CudaDevice):
        return None
    buffer = device.malloc(slabs[0].nbytes, "bench")
    try:
        return statistics.median(device.measure_link(buffer, slabs) for _ in range(LINK_REPEATS))
    finally:
        device.free(buffer)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = (line.partition(":")[2].strip() for line in lines if "model name" in line)
            return next(names, platform.processor())
    except OSError:
        return platform.processor()
