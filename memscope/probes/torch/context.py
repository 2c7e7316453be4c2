"""The CUDA context's own memory, where the program asks for it before it allocates anything."""

from __future__ import annotations

import importlib

from memscope.facts import DeviceFact
from memscope.probes.nvml.cards import OwnBytes
from memscope.recorder.recorder import Recorder


def measure_context(recorder: Recorder, device: int = 0) -> int | None:
    """Make the context on ``device`` and record what it takes, in bytes, as ``context.N``.

    On the program's thread, before torch allocates there: the process's bytes by NVML are then
    the context's. None, with the reason in the fact, where that cannot be had.
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
