"""Readings taken beside the program. Each probe can fail alone.

This file is the registry: what each probe reads, and which probes a recorder has by default. A new
probe is a file of its own and its lines here. Importing the registry loads no probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memscope.readings import define_readings

if TYPE_CHECKING:
    from memscope.recorder.probe_list import Probe

PROBE_READINGS = (
    *define_readings(
        "allocator",
        {
            "torch.allocated_bytes": "allocated by torch's allocator",
            "torch.reserved_bytes": "reserved from the driver by torch's allocator",
            "torch.active_bytes": "allocated, or freed but still in use on another stream",
            "torch.requested_bytes": "requested from torch's allocator, before rounding",
            "torch.inactive_split_bytes": "free parts of partly used segments",
            "torch.peak_allocated_bytes": "peak of allocated bytes, from torch's own counter",
            "torch.peak_reserved_bytes": "peak of reserved bytes, from torch's own counter",
            "torch.device_mallocs": "driver allocations by torch's allocator",
            "torch.device_frees": "driver frees by torch's allocator",
            "torch.alloc_retries": "allocations that succeeded only after a cache flush",
            "torch.ooms": "out-of-memory errors that torch raised",
        },
    ),
    *define_readings(
        "torch.private_pools",
        {
            "torch.private_free_bytes": "free in private pools",
            "torch.private_split_bytes": "free in partly used segments of private pools",
        },
    ),
    *define_readings(
        "nvml",
        {
            "nvml.used_bytes": "used on the GPU, by all processes",
            "nvml.free_bytes": "free on the GPU",
            "nvml.total_bytes": "memory of the GPU",
            "nvml.driver_reserved_bytes": "reserved by the driver",
            "nvml.process_bytes": "used on the GPU by this process, as the driver reports it",
        },
    ),
    *define_readings(
        "mem_get_info",
        {
            "mem_get_info.free_bytes": "free on the GPU, recorded if NVML does not report it",
            "mem_get_info.total_bytes": "memory of the GPU without the driver's own part",
        },
    ),
    *define_readings(
        "watch",
        {
            "model.weights_bytes": "weights of a watched model",
            "model.gradients_bytes": "gradients of a watched model",
            "model.optimizer_bytes": "state of a watched optimizer",
        },
    ),
    *define_readings(
        "kv_cache",
        {
            "model.kv_bytes": "KV caches of transformers",
        },
    ),
    *define_readings(
        "host",
        {
            "host.rss_bytes": "host RSS: resident memory of the process",
            "host.peak_rss_bytes": "peak host RSS, if it rose during the recording",
        },
    ),
    *define_readings(
        "pinned",
        {
            "host.pinned_bytes": "page-locked host memory held by torch",
            "host.pinned_used_bytes": "page-locked host memory in use",
        },
    ),
    *define_readings(
        "cgroup",
        {
            "cgroup.used_bytes": "memory used by the container",
        },
    ),
)


def default_probes(*, history: int = 0, cupti: bool = False) -> Sequence[Probe]:
    """The probes of every recording.

    ``history``: how many events torch keeps, and with them who allocated each block; 0 for none.
    ``cupti``: also record what other libraries allocate on the device, by library.
    """
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
