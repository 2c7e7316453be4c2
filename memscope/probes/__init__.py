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
            "torch.allocated_bytes": "handed out by torch's allocator",
            "torch.reserved_bytes": "taken from the driver by torch's allocator",
            "torch.active_bytes": "allocated, or freed with use pending",
            "torch.requested_bytes": "asked of torch's allocator, before rounding",
            "torch.inactive_split_bytes": "free parts of blocks in use",
            "torch.peak_allocated_bytes": "the allocator's own peak register",
            "torch.peak_reserved_bytes": "the allocator's own peak register",
            "torch.device_mallocs": "driver allocations of torch's allocator",
            "torch.device_frees": "driver frees of torch's allocator",
            "torch.alloc_retries": "allocations that needed a flush",
            "torch.ooms": "out-of-memory errors that torch raised",
        },
    ),
    *define_readings(
        "torch.private_pools",
        {
            "torch.private_free_bytes": "free in private pools",
            "torch.private_split_bytes": "of those, in segments partly used",
        },
    ),
    *define_readings(
        "nvml",
        {
            "nvml.used_bytes": "used on the card, by all",
            "nvml.free_bytes": "free on the card",
            "nvml.total_bytes": "the card's memory",
            "nvml.driver_reserved_bytes": "kept by the driver",
            "nvml.process_bytes": "this process on the card, by the driver",
        },
    ),
    *define_readings(
        "mem_get_info",
        {
            "mem_get_info.free_bytes": "free on the card, where NVML does not say",
            "mem_get_info.total_bytes": "the card, less the driver's own part",
        },
    ),
    *define_readings(
        "watch",
        {
            "model.weights_bytes": "a watched model's weights",
            "model.gradients_bytes": "a watched model's gradients",
            "model.optimizer_bytes": "a watched optimizer's state",
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
            "host.rss_bytes": "host RSS: what the process has in the machine's memory",
            "host.peak_rss_bytes": "peak host RSS, where it rose while it was recorded",
        },
    ),
    *define_readings(
        "pinned",
        {
            "host.pinned_bytes": "page-locked on the host by torch",
            "host.pinned_used_bytes": "of those, in use",
        },
    ),
    *define_readings(
        "cgroup",
        {
            "cgroup.used_bytes": "used by the container",
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
