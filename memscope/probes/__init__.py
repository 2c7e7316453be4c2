"""Readings taken beside the program, each able to fail alone."""

from __future__ import annotations

from collections.abc import Sequence

from memscope.probes.cgroup import CgroupProbe
from memscope.probes.host import HostProbe
from memscope.probes.nvml.probe import NvmlProbe
from memscope.probes.torch.allocator import AllocatorProbe
from memscope.probes.torch.allocator_flush import FlushProbe
from memscope.probes.torch.device import DeviceProbe
from memscope.probes.torch.device_free import DeviceFreeProbe
from memscope.probes.torch.oom import OomProbe
from memscope.probes.torch.pinned import PinnedProbe
from memscope.probes.torch.private_pools import PrivatePoolProbe
from memscope.probes.watch.kv_cache import KvCacheProbe
from memscope.recorder.probe_list import Probe


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
        from memscope.probes.cupti.probe import CuptiProbe

        probes += (CuptiProbe(),)
    return probes
