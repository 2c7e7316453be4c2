"""Torch's counters at both ends of a test: nothing of an earlier test, all of this one.

Torch is neither imported nor initialised. Both run on the test's own thread.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder


def forget_peaks() -> None:
    """Give back what earlier tests left in the cache, and begin new peaks.

    Memory that is still allocated, by a fixture say, is held by this test as well.
    """
    if "torch" not in sys.modules:
        return
    from memscope.probes.torch.allocator import cuda_torch

    torch = cuda_torch()
    if torch is not None:
        torch.cuda.empty_cache()
        for device in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(device)


def read_last(recorder: Recorder) -> None:
    """A last reading: the sampler's own may be older than the peak."""
    if "torch" not in sys.modules:
        return
    from memscope.probes.torch.allocator import AllocatorProbe
    from memscope.probes.torch.device import DeviceProbe

    DeviceProbe()(recorder)
    AllocatorProbe()(recorder)
