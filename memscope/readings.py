"""The vocabulary of readings: how a recorded value is named, and what a name tells.

A probe's readings stand in ``memscope.probes``; those that the runner samples itself stand here. A
program's own samples have any other name. Nothing here imports torch, numpy or pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The end of a reading's name → its unit.
_UNITS = {"_bytes": "bytes", "_ratio": "ratio", "_s": "s", "_ms": "ms"}


@dataclass(frozen=True, slots=True)
class ReadingDefinition:
    """One reading that memscope takes. ``probe``: its name in the facts; "" for the runner.

    The fact ``probe`` or ``probe.NAME`` says why a reading is missing.
    """

    name: str
    meaning: str
    probe: str = ""

    @property
    def unit(self) -> str:
        """The unit of its values; a count has none."""
        return unit_of(self.name) or ""


def unit_of(reading_name: str) -> str | None:
    """The unit that a reading's name ends in; None if it ends in none."""
    return next((unit for end, unit in _UNITS.items() if reading_name.endswith(end)), None)


def define_readings(probe: str, meanings: Mapping[str, str]) -> tuple[ReadingDefinition, ...]:
    """The readings of one probe, from name → meaning."""
    return tuple(ReadingDefinition(name, meaning, probe) for name, meaning in meanings.items())


RUNNER_READINGS = define_readings(
    "",
    {
        "device.allocated_bytes": "allocated on the runner's device",
        "device.peak_bytes": "peak of bytes allocated on the runner's device",
        "pool.idle_bytes": "idle in the weight pool: no layer holds it",
        "residency.in_flight_bytes": "weights being uploaded",
        "kv.used_bytes": "the runner's KV cache in use",
        "kv.held_blocks": "KV blocks that requests hold",
        "kv.unused_slots": "unused slots in requests' last KV blocks",
    },
)

# A reading taken at intervals → the register that misses nothing between two readings.
PEAK_REGISTERS = {
    "torch.allocated_bytes": "torch.peak_allocated_bytes",
    "torch.reserved_bytes": "torch.peak_reserved_bytes",
    "device.allocated_bytes": "device.peak_bytes",
    "host.rss_bytes": "host.peak_rss_bytes",
}
