"""Slabs: the int8 weights of a layer in one flat buffer, and where each entry lies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

GROUP = 32
ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Q8Weight:
    """One linear weight, weight = q × scale; both tensors may be views of a slab.

    q: int8 (rows, columns). scale: float16 (rows, columns / 32), one a group along columns.
    """

    q: torch.Tensor
    scale: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.q.shape[0], self.q.shape[1]

    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The weight as (rows, columns) in `dtype`."""
        rows, columns = self.shape
        groups = self.q.view(rows, columns // GROUP, GROUP)
        return (groups * self.scale.to(dtype).unsqueeze(-1)).view(rows, columns)

    def rows(self, indices: torch.Tensor) -> torch.Tensor:
        """Dequantized rows: int64 (count,) → float32 (count, columns)."""
        return Q8Weight(self.q[indices], self.scale[indices]).dequantize()


@dataclass(frozen=True, slots=True)
class Entry:
    """One linear weight inside a slab; offsets in bytes from the slab's start."""

    name: str
    rows: int
    columns: int
    start: int

    @property
    def q_bytes(self) -> int:
        return self.rows * self.columns

    @property
    def scale_bytes(self) -> int:
        return self.rows * (self.columns // GROUP) * 2

    @property
    def scale_start(self) -> int:
        return align(self.start + self.q_bytes)

    @property
    def end(self) -> int:
        return align(self.scale_start + self.scale_bytes)

    @property
    def bytes(self) -> int:
        return self.end - self.start

    @property
    def geometry(self) -> str:
        return f"{self.rows}x{self.columns // GROUP}"

    def weight(self, buffer: torch.Tensor) -> Q8Weight:
        """The views of this entry in a uint8 buffer that holds it alone, (bytes,)."""
        scale_start = self.scale_start - self.start
        q = buffer[: self.q_bytes].view(torch.int8).view(self.rows, self.columns)
        scale = buffer[scale_start : scale_start + self.scale_bytes].view(torch.float16)
        return Q8Weight(q, scale.view(self.rows, self.columns // GROUP))


@dataclass(frozen=True, slots=True)
class SlabLayout:
    """The entries of one slab in their order, each on a 256-byte boundary."""

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, shapes: Iterable[tuple[str, int, int]]) -> SlabLayout:
        """Lays out (name, rows, columns) one after the other."""
        entries: list[Entry] = []
        for name, rows, columns in shapes:
            entries.append(Entry(name, rows, columns, entries[-1].end if entries else 0))
        return cls(tuple(entries))

    @property
    def bytes(self) -> int:
        return self.entries[-1].end

    def entry(self, name: str) -> Entry:
        """The entry `name`. Raises KeyError if there is none."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise KeyError(name)

    def weights(self, buffer: torch.Tensor) -> dict[str, Q8Weight]:
        """Views without a copy of every entry in a uint8 buffer, (bytes,)."""
        return {entry.name: entry.weight(buffer[entry.start : entry.end]) for entry in self.entries}


def align(offset: int) -> int:
    """The next 256-byte boundary at or after `offset`."""
    return -(-offset // ALIGNMENT) * ALIGNMENT
