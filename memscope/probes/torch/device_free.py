"""Free and total bytes of a device from the CUDA runtime, if NVML does not tell them.

``mem_get_info`` calls the CUDA runtime. So it is called only on the program's thread at the end of
a step, never while that thread's stream is captured, and at most 20 times a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memscope.facts import probe_fact
from memscope.probes.pace import TimePace
from memscope.probes.torch.allocator import cuda_torch, read_counters

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder


class DeviceFreeProbe:
    """Records ``mem_get_info.free_bytes`` and ``.total_bytes`` of devices that NVML cannot read.

    The total does not include memory that the driver keeps for itself.
    """

    name = "mem_get_info"

    def __init__(self, lacks_memory: Callable[[int], bool]) -> None:
        """``lacks_memory``: whether NVML was asked for a device's memory and does not tell."""
        self._lacks_memory = lacks_memory
        self._recorder: Recorder | None = None
        self._devices: tuple[int, ...] = ()
        self._pace = TimePace()

    def __call__(self, recorder: Recorder) -> None:
        """On the recorder's thread: choose the devices to read from the next end of a step on."""
        torch = cuda_torch()
        if torch is None:
            return
        self._devices = tuple(
            device
            for device in range(torch.cuda.device_count())
            if self._lacks_memory(device) and read_counters(torch, device)["peak_reserved_bytes"]
        )
        if self._devices and self._recorder is None:
            self._recorder = recorder
            recorder.at_step_end = self._read

    def close(self) -> None:
        """Stop reading."""
        if self._recorder is not None:
            self._recorder.at_step_end = None

    def _read(self, step: int) -> None:
        """On the program's thread. A fault is recorded and ends the readings."""
        start_ns = time.perf_counter_ns()
        torch, recorder = cuda_torch(), self._recorder
        if torch is None or recorder is None or not self._pace.is_due(start_ns):
            return
        try:
            if torch.cuda.is_current_stream_capturing():
                return
            for device in self._devices:
                _sample(torch, recorder, device, step)
        except Exception as error:
            self.close()
            recorder.fact(probe_fact(self.name), {"stopped": f"{type(error).__name__}: {error}"})
        end_ns = time.perf_counter_ns()
        self._pace.end_read(end_ns, end_ns - start_ns)


def _sample(torch: Any, recorder: Recorder, device: int, step: int) -> None:
    free, total = torch.cuda.mem_get_info(device)
    for name, size in (("free", free), ("total", total)):
        recorder.sample(f"mem_get_info.{name}_bytes", bytes=int(size), step=step, device=device)
