"""The readings that memscope samples itself: their units, and which probe reads them.

A program's own samples have any other name.
"""

from __future__ import annotations

from dataclasses import dataclass

STATISTICS = ("peak", "min", "end", "p95", "median", "growth")

# The end of a reading's name → its unit.
_UNITS = {"_bytes": "bytes", "_ratio": "ratio", "_s": "s", "_ms": "ms"}


@dataclass(frozen=True, slots=True)
class ReadingDefinition:
    """``probe``: its fact, of that name or after ``probe.``, says why it was not read."""

    name: str
    meaning: str
    probe: str = ""

    @property
    def unit(self) -> str:
        """Of its readings; a count has none."""
        return unit_of(self.name) or ""


def unit_of(reading_name: str) -> str | None:
    """The unit that the name of a reading ends in; None where it ends in none."""
    return next((unit for end, unit in _UNITS.items() if reading_name.endswith(end)), None)


READINGS = (
    ReadingDefinition("torch.allocated_bytes", "handed out by torch's allocator", "allocator"),
    ReadingDefinition(
        "torch.reserved_bytes", "taken from the driver by torch's allocator", "allocator"
    ),
    ReadingDefinition("torch.active_bytes", "allocated, or freed with use pending", "allocator"),
    ReadingDefinition(
        "torch.requested_bytes", "asked of torch's allocator, before rounding", "allocator"
    ),
    ReadingDefinition("torch.inactive_split_bytes", "free parts of blocks in use", "allocator"),
    ReadingDefinition(
        "torch.peak_allocated_bytes", "the allocator's own peak register", "allocator"
    ),
    ReadingDefinition(
        "torch.peak_reserved_bytes", "the allocator's own peak register", "allocator"
    ),
    ReadingDefinition("torch.private_free_bytes", "free in private pools", "torch.private_pools"),
    ReadingDefinition(
        "torch.private_split_bytes", "of those, in segments partly used", "torch.private_pools"
    ),
    ReadingDefinition(
        "torch.device_mallocs", "driver allocations of torch's allocator", "allocator"
    ),
    ReadingDefinition("torch.device_frees", "driver frees of torch's allocator", "allocator"),
    ReadingDefinition("torch.alloc_retries", "allocations that needed a flush", "allocator"),
    ReadingDefinition("torch.ooms", "out-of-memory errors that torch raised", "allocator"),
    ReadingDefinition("nvml.used_bytes", "used on the card, by all", "nvml"),
    ReadingDefinition("nvml.free_bytes", "free on the card", "nvml"),
    ReadingDefinition("nvml.total_bytes", "the card's memory", "nvml"),
    ReadingDefinition("nvml.driver_reserved_bytes", "kept by the driver", "nvml"),
    ReadingDefinition("nvml.process_bytes", "this process on the card, by the driver", "nvml"),
    ReadingDefinition(
        "mem_get_info.free_bytes", "free on the card, where NVML does not say", "mem_get_info"
    ),
    ReadingDefinition(
        "mem_get_info.total_bytes", "the card, less the driver's own part", "mem_get_info"
    ),
    ReadingDefinition("model.weights_bytes", "a watched model's weights", "watch"),
    ReadingDefinition("model.gradients_bytes", "a watched model's gradients", "watch"),
    ReadingDefinition("model.optimizer_bytes", "a watched optimizer's state", "watch"),
    ReadingDefinition("model.kv_bytes", "KV caches of transformers", "kv_cache"),
    ReadingDefinition(
        "host.rss_bytes", "host RSS: what the process has in the machine's memory", "host"
    ),
    ReadingDefinition(
        "host.peak_rss_bytes", "peak host RSS, where it rose while it was recorded", "host"
    ),
    ReadingDefinition("host.pinned_bytes", "page-locked on the host by torch", "pinned"),
    ReadingDefinition("host.pinned_used_bytes", "of those, in use", "pinned"),
    ReadingDefinition("cgroup.used_bytes", "used by the container", "cgroup"),
    ReadingDefinition("device.allocated_bytes", "handed out by the runner's device"),
    ReadingDefinition("device.peak_bytes", "the most handed out by the runner's device"),
    ReadingDefinition("pool.idle_bytes", "in the weight pool, held by no layer"),
    ReadingDefinition("residency.in_flight_bytes", "weights on their way"),
    ReadingDefinition("kv.used_bytes", "the runner's KV cache in use"),
    ReadingDefinition("kv.held_blocks", "KV blocks that requests hold"),
    ReadingDefinition("kv.unused_slots", "slots without a token in requests' last KV blocks"),
)

BY_NAME = {reading.name: reading for reading in READINGS}
AREAS = frozenset(reading.name.partition(".")[0] for reading in READINGS)

# Readings at intervals → the register that misses nothing between them.
PEAK_REGISTERS = {
    "torch.allocated_bytes": "torch.peak_allocated_bytes",
    "torch.reserved_bytes": "torch.peak_reserved_bytes",
    "device.allocated_bytes": "device.peak_bytes",
    "host.rss_bytes": "host.peak_rss_bytes",
}
