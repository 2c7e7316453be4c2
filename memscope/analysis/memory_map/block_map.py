"""Segments to scale: what is allocated, pending and free in each, and who holds it.

Blocks too small to be told apart become one cell; strips of text and the picture of a page are made
of the same cells.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memscope.analysis.memory_map.memory_map import MemoryMap
from memscope.interop.snapshot.snapshot import ALLOCATED, INACTIVE, PENDING
from memscope.units import format_bytes

Numbers = npt.NDArray[np.int64]

WIDTH = 64
MOST_SEGMENTS = 200
MOST_LINES = 12
STRIP_CELLS = 8 * WIDTH
GLYPHS = {ALLOCATED: "#", PENDING: "~", INACTIVE: "."}
MIXED = ":"  # some of it free, some not
LEGEND = f"{GLYPHS[ALLOCATED]} allocated, {GLYPHS[PENDING]} pending, {GLYPHS[INACTIVE]} free, " + (
    f"{MIXED} both in one character"
)


@dataclass(frozen=True, slots=True)
class Cells:
    """Neighbouring blocks of a segment as one, in order of segment and offset; one value a cell.

    ``states`` has the bit ``1 << state`` of each state that is in it. ``stack``: the call stack of
    its largest live block, −1 where none was recorded.
    """

    segment: Numbers
    offset: Numbers
    bytes: Numbers
    allocated_bytes: Numbers
    pending_bytes: Numbers
    blocks: Numbers
    states: Numbers
    stack: Numbers

    def __len__(self) -> int:
        return len(self.segment)


def read_cells(memory: MemoryMap, resolution: Numbers) -> Cells:
    """Blocks of at least ``resolution`` bytes (one value a segment) each, smaller ones together."""
    blocks = memory.blocks
    offset = blocks.address - memory.segments.address[blocks.segment]
    least = np.maximum(resolution, 1)[blocks.segment]
    first = np.flatnonzero(_begins(blocks.segment, offset // least, blocks.bytes < least))
    if not len(first):
        return Cells(*(np.empty(0, dtype=np.int64) for _ in range(8)))
    is_live = blocks.state != INACTIVE
    return Cells(
        segment=blocks.segment[first],
        offset=offset[first],
        bytes=np.add.reduceat(blocks.bytes, first),
        allocated_bytes=np.add.reduceat(
            np.where(blocks.state == ALLOCATED, blocks.bytes, 0), first
        ),
        pending_bytes=np.add.reduceat(np.where(blocks.state == PENDING, blocks.bytes, 0), first),
        blocks=np.diff(np.append(first, len(blocks))),
        states=np.bitwise_or.reduceat(1 << blocks.state, first),
        stack=_stacks(np.where(is_live, blocks.bytes, 0), blocks.stack, first),
    )


def block_map(memory: MemoryMap) -> list[str]:
    """The largest segments, one line for those that look the same, and how many more there are."""
    sizes = memory.segments.bytes
    cells = read_cells(memory, sizes // STRIP_CELLS)
    largest = (-sizes).argsort(kind="stable")[:MOST_SEGMENTS]
    lines = Counter(
        f"{format_bytes(int(sizes[segment])):>9} |{_strip(cells, int(segment), int(size))}|"
        for segment, size in zip(largest, sizes[largest], strict=True)
    )
    shown = lines.most_common()[:MOST_LINES] if len(lines) > MOST_LINES else list(lines.items())
    drawn = sum(count for _, count in shown)
    found = [line if count == 1 else f"{line} × {count}" for line, count in shown]
    if len(sizes) > drawn:
        found.append(f"{len(sizes) - drawn:,} more segments")
    return found


def _begins(segment: Numbers, bucket: Numbers, is_small: npt.NDArray[np.bool_]) -> Numbers:
    """Where a cell begins: everywhere but at a small block behind another of the same bucket."""
    begins = np.ones(len(segment), dtype=np.int64)
    is_near = (bucket[1:] == bucket[:-1]) & (segment[1:] == segment[:-1])
    begins[1:] = ~(is_small[1:] & is_small[:-1] & is_near)
    return begins


def _stacks(live_bytes: Numbers, stack: Numbers, first: Numbers) -> Numbers:
    """Of each cell the stack of its largest live block."""
    cell = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(stack))))
    largest = np.lexsort((-live_bytes, cell))[first]
    return np.where(live_bytes[largest] > 0, stack[largest], -1)


def _strip(cells: Cells, segment: int, total: int) -> str:
    """A segment as characters: what its part of the segment is in."""
    begin, end = np.searchsorted(cells.segment, [segment, segment + 1])
    start = cells.offset[begin:end]
    last = start + cells.bytes[begin:end] - 1
    edges = [total * character // WIDTH for character in range(WIDTH + 1)] if total else []
    states = cells.states[begin:end]
    strip = ""
    for left, right in itertools.pairwise(edges):
        first = int(np.searchsorted(last, left))
        past = max(int(np.searchsorted(start, right)), first)
        strip += _glyph(states[first:past].tolist())
    return strip


def _glyph(states: Iterable[int]) -> str:
    found = 0
    for bits in states:
        found |= bits
    return {0: " ", **{1 << state: glyph for state, glyph in GLYPHS.items()}}.get(found, MIXED)
