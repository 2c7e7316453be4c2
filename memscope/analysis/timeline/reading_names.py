"""The metrics that memscope samples itself: their units, and which probe reads them.

A program's own samples have any other name.
"""

from __future__ import annotations

from dataclasses import dataclass

STATISTICS = ("peak", "min", "end", "p95", "median", "growth")

# The end of a metric's name → the unit of its readings.
_UNITS = {"_bytes": "bytes", "_ratio": "ratio", "_s": "s", "_ms": "ms"}


@dataclass(frozen=True, slots=True)
class Metric:
    """``probe``: its fact, of that name or after ``probe.``, says why it was not read."""

    name: str
    meaning: str
    probe: str = ""

    @property
    def unit(self) -> str:
        """Of its readings; a count has none."""
        return unit_of(self.name) or ""


def unit_of(metric: str) -> str | None:
    """The unit that the name of a metric ends in; None where it ends in none."""
    return next((unit for end, unit in _UNITS.items() if metric.endswith(end)), None)


METRICS = (
    Metric("torch.allocated_bytes", "handed out by torch's allocator", "allocator"),
    Metric("torch.reserved_bytes", "taken from the driver by torch's allocator", "allocator"),
    Metric("torch.active_bytes", "allocated, or freed with use pending", "allocator"),
    Metric("torch.requested_bytes", "asked of torch's allocator, before rounding", "allocator"),
    Metric("torch.inactive_split_bytes", "free parts of blocks in use", "allocator"),
    Metric("torch.peak_allocated_bytes", "the allocator's own peak register", "allocator"),
    Metric("torch.peak_reserved_bytes", "the allocator's own peak register", "allocator"),
    Metric("torch.private_free_bytes", "free in private pools", "torch.private_pools"),
    Metric("torch.private_split_bytes", "of those, in segments partly used", "torch.private_pools"),
    Metric("torch.device_mallocs", "driver allocations of torch's allocator", "allocator"),
    Metric("torch.device_frees", "driver frees of torch's allocator", "allocator"),
    Metric("torch.alloc_retries", "allocations that needed a flush", "allocator"),
    Metric("torch.ooms", "out-of-memory errors that torch raised", "allocator"),
    Metric("nvml.used_bytes", "used on the card, by all", "nvml"),
    Metric("nvml.free_bytes", "free on the card", "nvml"),
    Metric("nvml.total_bytes", "the card's memory", "nvml"),
    Metric("nvml.driver_reserved_bytes", "kept by the driver", "nvml"),
    Metric("nvml.process_bytes", "this process on the card, by the driver", "nvml"),
    Metric("mem_get_info.free_bytes", "free on the card, where NVML does not say", "mem_get_info"),
    Metric("mem_get_info.total_bytes", "the card, less the driver's own part", "mem_get_info"),
    Metric("model.weights_bytes", "a watched model's weights", "watch"),
    Metric("model.gradients_bytes", "a watched model's gradients", "watch"),
    Metric("model.optimizer_bytes", "a watched optimizer's state", "watch"),
    Metric("model.kv_bytes", "KV caches of transformers", "kv_cache"),
    Metric("host.rss_bytes", "host RSS: what the process has in the machine's memory", "host"),
    Metric("host.peak_rss_bytes", "peak host RSS, where it rose while it was recorded", "host"),
    Metric("host.pinned_bytes", "page-locked on the host by torch", "pinned"),
    Metric("host.pinned_used_bytes", "of those, in use", "pinned"),
    Metric("cgroup.used_bytes", "used by the container", "cgroup"),
    Metric("device.allocated_bytes", "handed out by the runner's device"),
    Metric("device.peak_bytes", "the most handed out by the runner's device"),
    Metric("pool.idle_bytes", "in the weight pool, held by no layer"),
    Metric("residency.in_flight_bytes", "weights on their way"),
    Metric("kv.used_bytes", "the runner's KV cache in use"),
    Metric("kv.held_blocks", "KV blocks that requests hold"),
    Metric("kv.unused_slots", "slots without a token in requests' last KV blocks"),
)

BY_NAME = {metric.name: metric for metric in METRICS}
AREAS = frozenset(metric.name.partition(".")[0] for metric in METRICS)

# Readings at intervals → the register that misses nothing between them.
PEAK_REGISTERS = {
    "torch.allocated_bytes": "torch.peak_allocated_bytes",
    "torch.reserved_bytes": "torch.peak_reserved_bytes",
    "device.allocated_bytes": "device.peak_bytes",
    "host.rss_bytes": "host.peak_rss_bytes",
}
