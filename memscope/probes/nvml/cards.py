"""Finds torch's devices in NVML, and what this process holds there."""

from __future__ import annotations

import importlib
import os
from typing import Any

NOT_AVAILABLE = (1 << 64) - 1


def find_card(nvml: Any, torch: Any, device: int) -> Any:
    """NVML's handle of a torch device, by UUID: NVML numbers cards otherwise and sees all."""
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return nvml.nvmlDeviceGetHandleByUUID(name)


def check_memory(memory: Any) -> Any:
    """The sizes of a card from NVML. Raises ValueError if they are not a card's own memory."""
    if not memory.total:
        raise ValueError("the driver says 0 bytes in all: this GPU may share the host's memory")
    return memory


def process_size(size: int | None, total: int | None) -> int | None:
    """Bytes of a process in NVML's list; None if NVML gives none, or an impossible size.

    All bits set means "not available". More than the card holds comes from a driver whose
    structures its library misreads (R535).
    """
    if size is None or size >= NOT_AVAILABLE or (total is not None and size > total):
        return None
    return int(size)


def own_bytes(nvml: Any, card: Any) -> int | None:
    """Bytes of this process on a card; None if NVML does not list it or gives no size."""
    for process in nvml.nvmlDeviceGetComputeRunningProcesses(card):
        if process.pid == os.getpid():
            return process_size(process.usedGpuMemory, None)
    return None


class OwnBytes:
    """Reads what this process holds on each device. Starts NVML at the first reading."""

    def __init__(self, nvml: Any = None) -> None:
        """``nvml``: the module pynvml; imported if None."""
        self._nvml = nvml
        self._is_ready = False
        self._cards: dict[int, Any] = {}

    def read(self, torch: Any, device: int) -> int | None:
        """Bytes; None if NVML does not list this process. Raises what NVML raises."""
        if not self._is_ready:
            self._nvml = self._nvml or importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            self._is_ready = True
        if device not in self._cards:
            self._cards[device] = find_card(self._nvml, torch, device)
        return own_bytes(self._nvml, self._cards[device])

    def try_read(self, torch: Any, device: int) -> int | None:
        """Bytes; None also if NVML is absent or refuses. Its own probe records why."""
        try:
            return self.read(torch, device)
        except Exception:
            return None
