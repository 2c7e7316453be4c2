"""Memory of this process on the host, from /proc."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from memscope.facts import Fact
from memscope.probes.kernel_files import read_kernel_file

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

try:
    import resource
except ImportError:  # Windows, which has no /proc either
    resource = None  # type: ignore[assignment]

LEAST_NS = 250_000_000  # between two readings: opening the file costs what all other probes do
STATUS = "/proc/self/status"


class HostProbe:
    """Records ``host.rss_bytes`` 4 times a second and at the end.

    With it comes ``host.peak_rss_bytes``, the kernel's register, once it has risen since the first
    reading: before, it may be older than the recording. The limit of the address space is a fact.
    Raises OSError if there is no /proc, which stops the probe.
    """

    name = "host"

    def __init__(self) -> None:
        self._due_ns = 0
        self._peak_before: int | None = None
        self._limits: dict[str, int | None] = {}

    def __call__(self, recorder: Recorder) -> None:
        now_ns = time.perf_counter_ns()
        if now_ns < self._due_ns and not recorder.is_closing:
            return
        self._due_ns = now_ns + LEAST_NS
        status = read_kernel_file(STATUS)
        resident, peak = _size(b"VmRSS", status), _size(b"VmHWM", status)
        if resident is None:
            raise OSError(f"{STATUS} does not say what is resident")
        self._note_limits(recorder)
        recorder.sample("host.rss_bytes", bytes=resident)
        if peak is None:
            return
        before = peak if self._peak_before is None else self._peak_before
        if peak > before:
            recorder.sample("host.peak_rss_bytes", bytes=peak)
        self._peak_before = min(before, peak)  # /proc/self/clear_refs lowers it

    def _note_limits(self, recorder: Recorder) -> None:
        limits = {"address_space_bytes": address_space_limit()}
        if limits != self._limits:
            self._limits = limits
            recorder.fact(Fact.HOST_LIMITS, limits)


def address_space_limit() -> int | None:
    """RLIMIT_AS (ulimit -v): bytes that the process may map; None if unlimited."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def _size(name: bytes, status: bytes) -> int | None:
    found = re.search(rb"^%s:\s*(\d+) kB" % name, status, re.MULTILINE)
    return int(found[1]) << 10 if found else None
