"""Memory of this process on the host, from /proc."""

from __future__ import annotations

import os
import time

from memscope.probes.kernel_files import read_kernel_file
from memscope.probes.pace import TimePace
from memscope.writer import Recorder

LEAST_NS = 250_000_000  # between two readings: opening the file costs what all other probes do


class HostProbe:
    """Samples ``host.rss_bytes`` 4 times a second and at the end.

    Raises OSError where there is no /proc, which stops it.
    """

    name = "host"

    def __init__(self) -> None:
        self._pace = TimePace(least_ns=LEAST_NS)
        self._page_bytes = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0

    def __call__(self, recorder: Recorder) -> None:
        start_ns = time.perf_counter_ns()
        if not self._pace.is_due(start_ns) and not recorder.is_closing:
            return
        resident = int(read_kernel_file("/proc/self/statm").split()[1])
        recorder.sample("host.rss_bytes", bytes=resident * self._page_bytes)
        self._pace.end_read(start_ns, time.perf_counter_ns())
