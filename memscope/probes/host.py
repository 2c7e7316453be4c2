"""Memory of this process on the host, from /proc."""

from __future__ import annotations

import os

from memscope.writer import Recorder


class HostProbe:
    """Samples ``host.rss_bytes``; raises OSError where there is no /proc, which stops it."""

    name = "host"

    def __init__(self) -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0

    def __call__(self, recorder: Recorder) -> None:
        with open("/proc/self/statm", "rb") as file:
            resident = int(file.read().split()[1])
        recorder.sample("host.rss_bytes", bytes=resident * self._page_bytes)
