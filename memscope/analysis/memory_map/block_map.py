"""Segments drawn to scale: allocated, pending and free memory, and its owners.

Blocks too small to see are merged into one cell. Text strips and the pictures of a page use the
same cells.
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
MIXED = ":"  # blocks of different states
LEGEND = f"{GLYPHS[ALLOCATED]} allocated, {GLYPHS[PENDING]} pending, {GLYPHS[INACTIVE]} free, " + (
    f"{MIXED} several of these"
)


@dataclass(frozen=True, slots=True)
class Cells:
    """Neighbouring blocks merged into cells, ordered by segment and offset; one value per cell.

    ``states`` has the bit ``1 << state`` for each state in the cell. ``stack``: call stack of
    its largest live block, −1 if none was recorded.
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
    """A cell for each block of at least ``resolution`` bytes; smaller neighbours share a cell.

    ``resolution`` has one value per segment.
    """
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
    """The largest segments as text, one line for equal ones, and the number of further segments."""
    sizes = memory.segments.bytes
    cells = read_cells(memory, sizes // STRIP_CELLS)
    largest = (-sizes).argsort(kind="stable")[:MOST_SEGMENTS]
    lines = Counter(
        f"{format_bytes(int(sizes[segment])):>9} |{_strip(cells, int(segment), int(size))}|"
        for segment, size in zip(largest, sizes[largest], strict=True)
    )
    shown = lines.most_common()[:MOST_LINES] if len(lines) > MOST_LINES else list(lines.items())
    drawn = sum(count for _, count in shown)
    texts = [line if count == 1 else f"{line} × {count}" for line, count in shown]
    if len(sizes) > drawn:
        texts.append(f"{len(sizes) - drawn:,} more segments")
    return texts


def _begins(segment: Numbers, bucket: Numbers, is_small: npt.NDArray[np.bool_]) -> Numbers:
    """Which blocks begin a cell: all but small ones that follow another in the same bucket."""
    begins = np.ones(len(segment), dtype=np.int64)
    is_near = (bucket[1:] == bucket[:-1]) & (segment[1:] == segment[:-1])
    begins[1:] = ~(is_small[1:] & is_small[:-1] & is_near)
    return begins


def _stacks(live_bytes: Numbers, stack: Numbers, first: Numbers) -> Numbers:
    """The call stack of the largest live block in each cell."""
    cell = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(stack))))
    largest = np.lexsort((-live_bytes, cell))[first]
    return np.where(live_bytes[largest] > 0, stack[largest], -1)


def _strip(cells: Cells, segment: int, total: int) -> str:
    """A segment as characters; each stands for an equal part of it."""
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
