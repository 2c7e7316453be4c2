"""Readings taken beside the program, each able to fail alone."""

from __future__ import annotations

from collections.abc import Sequence

from memscope.probes.allocator import AllocatorProbe
from memscope.probes.host import HostProbe
from memscope.probes.nvml import NvmlProbe
from memscope.writer import Probe


def default_probes() -> Sequence[Probe]:
    """What every recording samples."""
    return (HostProbe(), AllocatorProbe(), NvmlProbe())
