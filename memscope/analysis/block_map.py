"""Segments as strips of text: what is allocated, pending and free in each."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np

from memscope.analysis.memory_map import MemoryMap
from memscope.interop.torch_snapshot import ALLOCATED, INACTIVE, PENDING
from memscope.units import format_bytes

WIDTH = 64
MOST_SEGMENTS = 200
MOST_LINES = 12
GLYPHS = {ALLOCATED: "#", PENDING: "~", INACTIVE: "."}
MIXED = ":"  # some of it free, some not
LEGEND = f"{GLYPHS[ALLOCATED]} allocated, {GLYPHS[PENDING]} pending, {GLYPHS[INACTIVE]} free, " + (
    f"{MIXED} both in one character"
)


def block_map(memory: MemoryMap) -> list[str]:
    """The largest segments, one line for those that look the same, and how many more there are."""
    sizes = memory.segments.bytes
    largest = (-sizes).argsort(kind="stable")[:MOST_SEGMENTS]
    lines = Counter(
        f"{format_bytes(int(sizes[segment])):>9} |{_strip(memory, int(segment))}|"
        for segment in largest
    )
    shown = lines.most_common()[:MOST_LINES] if len(lines) > MOST_LINES else list(lines.items())
    drawn = sum(count for _, count in shown)
    found = [line if count == 1 else f"{line} × {count}" for line, count in shown]
    if len(sizes) > drawn:
        found.append(f"{len(sizes) - drawn:,} more segments")
    return found


def _strip(memory: MemoryMap, segment: int) -> str:
    """A segment as characters: what its part of the segment is in."""
    begin, end = np.searchsorted(memory.blocks.segment, [segment, segment + 1])
    total = int(memory.segments.bytes[segment])
    start = memory.blocks.address[begin:end] - memory.segments.address[segment]
    last = start + memory.blocks.bytes[begin:end] - 1
    edges = [total * cell // WIDTH for cell in range(WIDTH + 1)] if total else []
    states = memory.blocks.state[begin:end]
    cells = ""
    for left, right in itertools.pairwise(edges):
        first = int(np.searchsorted(last, left))
        past = max(int(np.searchsorted(start, right)), first)
        cells += _glyph(set(states[first:past].tolist()))
    return cells


def _glyph(states: set[int]) -> str:
    return GLYPHS[next(iter(states))] if len(states) == 1 else MIXED if states else " "
