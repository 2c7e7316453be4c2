"""Bytes of the CUDA context, if the program measures it before its first allocation."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from memscope.facts import DeviceFact
from memscope.probes.nvml.cards import OwnBytes

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder


def measure_context(recorder: Recorder, device: int = 0) -> int | None:
    """Create the context on ``device`` and record its bytes as the fact ``context.N``.

    Call it on the program's thread before torch allocates on the device: all bytes of the process
    in NVML are then the context's. Returns None if it cannot be measured; the fact says why.
    """
    size, reason = None, None
    try:
        torch = importlib.import_module("torch")
        torch.cuda.synchronize(device)
        if torch.cuda.memory_reserved(device):
            reason = "torch had reserved memory before the context was measured"
        else:
            size = OwnBytes().read(torch, device)
            reason = None if size is not None else "NVML does not list this process"
    except Exception as error:  # no CUDA, no NVML, no permission: the reason is all that counts
        reason = f"{type(error).__name__}: {error}"
    recorder.fact(
        DeviceFact.CONTEXT.of(device), {"bytes": size} if reason is None else {"reason": reason}
    )
    return size
