"""Pinned host memory of torch's host allocator. Torch 2.7 and newer count it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memscope.facts import probe_fact
from memscope.probes.pace import TimePace
from memscope.probes.torch.allocator import cuda_torch

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

LEAST_NS = 250_000_000  # between two readings


class PinnedProbe:
    """Records ``host.pinned_bytes`` (with cached blocks) and ``host.pinned_used_bytes``.

    Torch rounds blocks up to a power of two, and so are these bytes.
    """

    name = "pinned"

    def __init__(self) -> None:
        self._is_counted = True
        self._pace = TimePace(least_ns=LEAST_NS)

    def __call__(self, recorder: Recorder) -> None:
        torch, now_ns = cuda_torch(), time.perf_counter_ns()
        is_early = not self._pace.is_due(now_ns) and not recorder.is_closing
        if torch is None or not self._is_counted or is_early:
            return
        read = getattr(torch._C, "_cuda_hostMemoryStats", None)
        if read is None:
            self._is_counted = False
            recorder.fact(probe_fact("pinned"), {"absent": "torch 2.7 is the first that counts it"})
            return
        start_ns = time.thread_time_ns()
        counters = read()
        for reading_name, key in (
            ("host.pinned_bytes", "allocated_bytes"),
            ("host.pinned_used_bytes", "active_bytes"),
        ):
            held = _current(counters.get(key))
            if held is not None:
                recorder.sample(reading_name, bytes=held)
        self._pace.end_read(now_ns, time.thread_time_ns() - start_ns)


def _current(counter: Any) -> int | None:
    """``current`` of a counter. Some versions keep it per pool, under "all"."""
    if isinstance(counter, Mapping):
        counter = counter.get("all", counter)
        current = counter.get("current")
        return None if current is None else int(current)
    return None
