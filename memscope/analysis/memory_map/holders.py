"""Who holds memory: live blocks by call stack, by the user's label and by stream.

A holder is named by its innermost frame outside PyTorch and installed packages, because frames
inside them are the same for everybody.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memscope.analysis.memory_map.memory_map import MemoryMap
from memscope.interop.snapshot.values import Stacks

Numbers = npt.NDArray[np.int64]

NO_STACK = "no call stack was recorded"
NO_LABEL = "no label"
_SHOWN_FRAMES = 12
# C++ frames have no file or a C++ file. Frames of the interpreter are among them.
_NATIVE = re.compile(
    r"\((?:unknown|\?\?:-?\d+|[^()]*\.(?:cpp|cu|cuh|h|hpp|cc|c|so)[^()/]*:-?\d+)\)$"
)
_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages)[/\\]|[/\\]torch[/\\]|<frozen ")


@dataclass(frozen=True, slots=True)
class Holder:
    """Live blocks that share a name. ``frames``: their call stack, the innermost first."""

    name: str
    bytes: int
    blocks: int
    frames: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pin:
    """A segment with free memory that cannot be given back, and the holders of its live blocks."""

    address: int
    bytes: int
    free_bytes: int
    largest_free_bytes: int
    live_blocks: int
    live_bytes: int
    holders: tuple[Holder, ...]


def by_stack(
    memory: MemoryMap, stacks: Stacks, most: int, which: npt.NDArray[np.bool_] | None = None
) -> tuple[Holder, ...]:
    """The ``most`` largest holders by call stack, among all live blocks or those in ``which``."""
    live = memory.is_live if which is None else which
    groups = _groups(memory.blocks.stack[live], memory.blocks.bytes[live], most)
    return tuple(
        Holder(name_stack(stacks, code), size, count, python_frames(stacks, code)[:_SHOWN_FRAMES])
        for code, size, count in groups
    )


def by_label(memory: MemoryMap, most: int) -> tuple[Holder, ...]:
    """The largest holders by the user's own label; empty if there is no label."""
    live = memory.is_live
    if not memory.label[live].any():
        return ()
    groups = _groups(memory.label[live], memory.blocks.bytes[live], most)
    return tuple(
        Holder(memory.labels[code] or NO_LABEL, size, count) for code, size, count in groups
    )


def by_stream(memory: MemoryMap, most: int) -> tuple[Holder, ...]:
    """The largest holders by stream."""
    live = memory.is_live
    groups = _groups(memory.stream[live], memory.blocks.bytes[live], most)
    return tuple(Holder(name_stream(code), size, count) for code, size, count in groups)


def pins(
    memory: MemoryMap, stacks: Stacks, pinned: Numbers, *, most: int = 5, holders: int = 3
) -> tuple[Pin, ...]:
    """The segments with most free bytes in ``pinned`` (one value per block), with their holders."""
    total = np.zeros(len(memory.segments), dtype=np.int64)
    np.add.at(total, memory.blocks.segment, pinned)
    worst = np.argsort(-total, kind="stable")[:most]
    return tuple(
        _pin(memory, stacks, int(segment), int(total[segment]), holders)
        for segment in worst
        if total[segment] > 0
    )


def name_stack(stacks: Stacks, code: int) -> str:
    """The innermost frame of the user's own code; else the innermost frame."""
    lines = python_frames(stacks, code)
    if not lines:
        return NO_STACK
    return next((line for line in lines if not _LIBRARY.search(line)), lines[0])


def python_frames(stacks: Stacks, code: int) -> tuple[str, ...]:
    """The Python frames of a stack, the innermost first; all frames if none is Python."""
    lines = stacks.lines(code)
    return tuple(line for line in lines if not _NATIVE.search(line)) or lines


def name_stream(stream: int) -> str:
    """A stream as text: 0 is the default stream, others are pointers."""
    return "the default stream" if stream == 0 else f"stream {stream:#x}"


def count_blocks(count: int) -> str:
    """ "1 block", "2 blocks"."""
    return f"{count:,} block" if count == 1 else f"{count:,} blocks"


def _pin(memory: MemoryMap, stacks: Stacks, segment: int, free: int, most: int) -> Pin:
    mine = memory.blocks.segment == segment
    live = mine & memory.is_live
    return Pin(
        address=int(memory.segments.address[segment]),
        bytes=int(memory.segments.bytes[segment]),
        free_bytes=free,
        largest_free_bytes=int(memory.blocks.bytes[mine & ~live].max(initial=0)),
        live_blocks=int(live.sum()),
        live_bytes=int(memory.blocks.bytes[live].sum()),
        holders=by_stack(memory, stacks, most, live),
    )


def _groups(keys: Numbers, sizes: Numbers, most: int) -> Sequence[tuple[int, int, int]]:
    """Key, bytes and number of blocks of the largest groups."""
    distinct, row, count = np.unique(keys, return_inverse=True, return_counts=True)
    total = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(total, row.reshape(-1), sizes)
    order = np.argsort(-total, kind="stable")[:most]
    return [(int(distinct[i]), int(total[i]), int(count[i])) for i in order]
