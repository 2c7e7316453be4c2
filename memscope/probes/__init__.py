"""Readings taken beside the program, each able to fail alone."""

from __future__ import annotations

from collections.abc import Sequence

from memscope.probe_list import Probe
from memscope.probes.allocator import AllocatorProbe
from memscope.probes.allocator_flush import FlushProbe
from memscope.probes.cgroup import CgroupProbe
from memscope.probes.device import DeviceProbe
from memscope.probes.device_free import DeviceFreeProbe
from memscope.probes.host import HostProbe
from memscope.probes.kv_cache import KvCacheProbe
from memscope.probes.nvml import NvmlProbe
from memscope.probes.oom import OomProbe
from memscope.probes.pinned import PinnedProbe
from memscope.probes.private_pools import PrivatePoolProbe


def default_probes(*, history: int = 0, cupti: bool = False) -> Sequence[Probe]:
    """What every recording samples. ``cupti``: allocations outside torch, by library, as well.

    ``history``: events that torch keeps, and with them who allocated each block; 0 for none.
    """
    nvml = NvmlProbe()
    probes: tuple[Probe, ...] = (
        OomProbe(history),
        FlushProbe(),
        DeviceProbe(),
        KvCacheProbe(),
        AllocatorProbe(),
        PrivatePoolProbe(),
        nvml,
        DeviceFreeProbe(nvml.lacks_memory),
        PinnedProbe(),
        HostProbe(),
        CgroupProbe(),
    )
    if cupti:
        from memscope.probes.cupti import CuptiProbe

        probes += (CuptiProbe(),)
    return probes
