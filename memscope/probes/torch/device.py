"""Facts about torch: its version, its devices, the settings of its allocator. Each once."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from memscope.facts import DeviceFact, Fact
from memscope.probes.torch.allocator import cuda_torch

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

# Variables that change what memory is used, or where; no others are recorded.
ENVIRONMENT = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_HIP_ALLOC_CONF",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUBLAS_WORKSPACE_CONFIG",
    "NCCL_BUFFSIZE",
    "OMP_NUM_THREADS",
    "MALLOC_ARENA_MAX",
    "LD_PRELOAD",
)


class DeviceProbe:
    """Records ``environment``, ``torch.version``, ``torch.allocator``, and ``cuda.N`` per device.

    A device is recorded once torch has used it.
    """

    name = "device"

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._has_version = False

    def begin(self, recorder: Recorder) -> None:
        """Read the environment before the program can change it."""
        found = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        recorder.fact(Fact.ENVIRONMENT, found)

    def __call__(self, recorder: Recorder) -> None:
        if not self._has_version and (versions := read_versions()):
            self._has_version = True
            recorder.fact(Fact.TORCH_VERSION, versions)
        torch = cuda_torch()
        if torch is None:
            return
        for device in range(torch.cuda.device_count()):
            if device in self._known or not _is_used(torch, device):
                continue
            if not self._known:
                recorder.fact(Fact.ALLOCATOR, read_settings(torch))
            self._known.add(device)
            recorder.fact(DeviceFact.CUDA.of(device), describe_device(torch, device))


def read_versions() -> dict[str, str]:
    """Versions of torch and of the CUDA it was built for; empty until torch is imported."""
    version = getattr(sys.modules.get("torch"), "version", None)
    found = {"torch": getattr(version, "__version__", None), "cuda": getattr(version, "cuda", None)}
    return {name: str(value) for name, value in found.items() if value}


def describe_device(torch: Any, device: int) -> dict[str, object]:
    """Name, kind, UUID, total bytes, and the bytes that this process may use."""
    properties = torch.cuda.get_device_properties(device)
    total = int(properties.total_memory)
    share = getattr(torch.cuda, "get_per_process_memory_fraction", None)  # torch 2.6
    fraction = float(share(device)) if share is not None else 1.0
    return {
        "name": str(properties.name),
        "kind": "cuda",
        "uuid": str(getattr(properties, "uuid", "")),
        "total_bytes": total,
        "limit_bytes": int(total * fraction) if 0 < fraction < 1 else total,
    }


def read_settings(torch: Any) -> dict[str, object]:
    """Kind and settings of the allocator, from the environment."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    text = next((os.environ[name] for name in names if os.environ.get(name)), "")
    return {
        "backend": str(torch.cuda.get_allocator_backend()),
        "settings": text,
        "is_expandable": "expandable_segments:true" in text.replace(" ", "").lower(),
    }


def _is_used(torch: Any, device: int) -> bool:
    read = getattr(torch._C, "_cuda_memoryStats", None) or torch.cuda.memory_stats_as_nested_dict
    return bool(read(device)["reserved_bytes"]["all"]["peak"])
