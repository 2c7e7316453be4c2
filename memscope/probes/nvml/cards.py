"""Torch's devices as NVML knows them, and what this process holds there."""

from __future__ import annotations

import importlib
import os
from typing import Any

NOT_AVAILABLE = (1 << 64) - 1


def find_card(nvml: Any, torch: Any, device: int) -> Any:
    """NVML's handle of a device of torch, by UUID: NVML counts in another order and sees all."""
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return nvml.nvmlDeviceGetHandleByUUID(name)


def check_memory(memory: Any) -> Any:
    """NVML's sizes of a card. Raises ValueError where they are of no card's own memory."""
    if not memory.total:
        raise ValueError("the driver says 0 bytes in all: this GPU may share the host's memory")
    return memory


def process_size(size: int | None, total: int | None) -> int | None:
    """Bytes of a process as NVML lists it; None where it gives none, or what cannot be.

    A sentinel of all bits is "not available"; more than the card holds comes of a driver whose
    structures its library misreads (R535).
    """
    if size is None or size >= NOT_AVAILABLE or (total is not None and size > total):
        return None
    return int(size)


def own_bytes(nvml: Any, card: Any) -> int | None:
    """What this process holds on a card; None where NVML does not list it, or gives no bytes."""
    for process in nvml.nvmlDeviceGetComputeRunningProcesses(card):
        if process.pid == os.getpid():
            return process_size(process.usedGpuMemory, None)
    return None


class OwnBytes:
    """Reads what this process holds on each device; NVML is started at the first reading."""

    def __init__(self, nvml: Any = None) -> None:
        """`nvml`: the module; None imports pynvml."""
        self._nvml = nvml
        self._is_ready = False
        self._cards: dict[int, Any] = {}

    def read(self, torch: Any, device: int) -> int | None:
        """In bytes; None where NVML does not list this process. Raises what NVML raises."""
        if not self._is_ready:
            self._nvml = self._nvml or importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            self._is_ready = True
        if device not in self._cards:
            self._cards[device] = find_card(self._nvml, torch, device)
        return own_bytes(self._nvml, self._cards[device])

    def try_read(self, torch: Any, device: int) -> int | None:
        """The same; None also where NVML is absent or refuses, of which its own probe tells."""
        try:
            return self.read(torch, device)
        except Exception:
            return None
