"""The part of a slab that one upload copies: the whole slab, or one entry."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch

from memscope.errors import MemscopeError
from memscope_runners.memory.static_pool import Planned
from memscope_runners.q8.slab import Entry, Q8Weight, SlabLayout


class Unit(StrEnum):
    """What one upload carries."""

    SLAB = "slab"  # all quantized weights of a layer
    ENTRY = "entry"  # one of them: q, k, v, o, gate, up or down


@dataclass(frozen=True, slots=True)
class Part:
    """Entries that share one buffer and are copied together."""

    name: str
    geometry: str
    entries: tuple[Entry, ...]
    start: int
    bytes: int

    @classmethod
    def of_slab(cls, layout: SlabLayout) -> Part:
        return cls(Unit.SLAB.value, f"slab of {layout.bytes}", layout.entries, 0, layout.bytes)

    @classmethod
    def of_entry(cls, entry: Entry) -> Part:
        return cls(entry.name, entry.geometry, (entry,), entry.start, entry.bytes)

    def source(self, slab: torch.Tensor) -> torch.Tensor:
        """This part of a slab, uint8 (bytes,)."""
        return slab[self.start : self.start + self.bytes]

    def weights(self, memory: torch.Tensor) -> list[Q8Weight]:
        """The entries' weights as views of a buffer, uint8 (bytes,), that holds only this part."""
        return [
            entry.weight(memory[entry.start - self.start : entry.end - self.start])
            for entry in self.entries
        ]


def planned_buffers(layer_parts: tuple[Part, ...], layers: int, head: Part) -> tuple[Planned, ...]:
    """The buffers for `layers` layers at once and for lm_head."""
    return (
        *(Planned(part.geometry, part.bytes, layers) for part in layer_parts),
        Planned(head.geometry, head.bytes, 1),
    )


def split_layout(layout: SlabLayout, unit: str) -> tuple[Part, ...]:
    """The parts of a slab in the order of their upload. Raises MemscopeError."""
    if unit == Unit.SLAB:
        return (Part.of_slab(layout),)
    if unit == Unit.ENTRY:
        return tuple(Part.of_entry(entry) for entry in layout.entries)
    raise MemscopeError(f"There is no unit {unit!r}.", f"Use one of {', '.join(Unit)}.")
