"""What one upload carries: a whole slab, or one entry of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from memscope.errors import MemscopeError
from memscope_runners.memory.static_pool import Planned
from memscope_runners.q8.slab import Entry, Q8Weight, SlabLayout

UNITS = ("slab", "entry")


@dataclass(frozen=True, slots=True)
class Part:
    """A run of entries that shares one buffer and is copied at once."""

    name: str
    geometry: str
    entries: tuple[Entry, ...]
    start: int
    bytes: int

    @classmethod
    def of_slab(cls, layout: SlabLayout) -> Part:
        return cls("slab", f"slab of {layout.bytes}", layout.entries, 0, layout.bytes)

    @classmethod
    def of_entry(cls, entry: Entry) -> Part:
        return cls(entry.name, entry.geometry, (entry,), entry.start, entry.bytes)

    def source(self, slab: torch.Tensor) -> torch.Tensor:
        """This part of a slab, uint8 (bytes,)."""
        return slab[self.start : self.start + self.bytes]

    def weights(self, memory: torch.Tensor) -> list[Q8Weight]:
        """The entries' weights as views of a buffer that holds this part alone, uint8 (bytes,)."""
        return [
            entry.weight(memory[entry.start - self.start : entry.end - self.start])
            for entry in self.entries
        ]


def planned_buffers(layer_parts: tuple[Part, ...], layers: int, head: Part) -> tuple[Planned, ...]:
    """What `layers` layers at once and lm_head need."""
    return (
        *(Planned(part.geometry, part.bytes, layers) for part in layer_parts),
        Planned(head.geometry, head.bytes, 1),
    )


def split_layout(layout: SlabLayout, unit: str) -> tuple[Part, ...]:
    """The parts of a slab in the order of their upload. Raises MemscopeError."""
    if unit == "slab":
        return (Part.of_slab(layout),)
    if unit == "entry":
        return tuple(Part.of_entry(entry) for entry in layout.entries)
    raise MemscopeError(f"There is no unit {unit!r}.", f"Use one of {', '.join(UNITS)}.")
