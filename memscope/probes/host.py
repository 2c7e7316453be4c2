"""Memory of this process on the host, from /proc."""

from __future__ import annotations

import os
import time

from memscope.writer import Recorder

SECONDS = 0.25  # between two readings: opening the file costs as much as all other probes do


class HostProbe:
    """Samples ``host.rss_bytes`` 4 times a second and at the end.

    Raises OSError where there is no /proc, which stops it.
    """

    name = "host"

    def __init__(self) -> None:
        self._read_at = 0.0
        self._page_bytes = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0

    def __call__(self, recorder: Recorder) -> None:
        now = time.monotonic()
        if now - self._read_at < SECONDS and not recorder.is_closing:
            return
        self._read_at = now
        with open("/proc/self/statm", "rb") as file:
            resident = int(file.read().split()[1])
        recorder.sample("host.rss_bytes", bytes=resident * self._page_bytes)
