"""The allocator's map as a picture: segments as rows drawn to scale, blocks as their cells."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from memscope.analysis.memory_map.block_map import Cells, read_cells
from memscope.analysis.memory_map.holders import name_stack, name_stream
from memscope.analysis.memory_map.recorded_map import recorded_map
from memscope.interop.snapshot.snapshot import ALLOCATED, INACTIVE, PENDING

if TYPE_CHECKING:
    from memscope.analysis.memory_map.memory_map import MemoryMap
    from memscope.analysis.timeline.timeline import Timeline
    from memscope.interop.snapshot.values import PoolId, Stacks

Numbers = npt.NDArray[np.int64]

MOST_ROWS = 60
MOST_CELLS = 2000
MOST_SEGMENTS = 4000
ROW_CELLS = 400  # cells of a panel's largest segment that a screen can show
PANELS, PANEL_BITS = 3, 3
LEAST_SHARE = 16  # of a panel's width; smaller segments are drawn as one cell
_STATES = {1 << ALLOCATED: "allocated", 1 << PENDING: "pending", 1 << INACTIVE: "free"}
MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class PictureCell:
    """A block, or neighbouring blocks too small to see.

    ``offset`` and ``bytes`` are those of one segment; the other values cover all segments of
    the row. ``state``: allocated, pending (another stream may still use it), free, or mixed.
    ``owner``: who allocated the largest live block of the first segment; empty if unknown.
    """

    offset: int
    bytes: int
    state: str
    allocated_bytes: int
    pending_bytes: int
    free_bytes: int
    blocks: int
    owner: str


@dataclass(frozen=True, slots=True)
class PictureRow:
    """Equal-sized segments that look the same.

    ``pool`` and ``stream`` are empty for the default pool and stream.
    """

    bytes: int
    segments: int
    pool: str
    stream: str
    is_expandable: bool
    cells: tuple[PictureCell, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """Rows drawn to one scale, largest first. Blocks below ``resolution_bytes`` share a cell."""

    rows: tuple[PictureRow, ...]
    resolution_bytes: int


@dataclass(frozen=True, slots=True)
class BlockPicture:
    """The map of one device. Segments of similar size share a panel.

    ``t_ns``: its time in the recording. ``missing_segments``: segments that the recording
    lacks.
    """

    panels: tuple[Panel, ...]
    reserved_bytes: int
    segments: int
    device: int
    t_ns: int | None = None
    missing_segments: int = 0
    missing_bytes: int = 0

    @property
    def rows(self) -> tuple[PictureRow, ...]:
        """The rows of all panels."""
        return tuple(row for panel in self.panels for row in panel.rows)

    @property
    def undrawn_segments(self) -> int:
        """Number of segments that are in no row."""
        return self.segments - sum(row.segments for row in self.rows)

    @property
    def undrawn_bytes(self) -> int:
        """Bytes of the segments that are in no row."""
        return self.reserved_bytes - sum(row.segments * row.bytes for row in self.rows)


def recorded_picture(timeline: Timeline) -> BlockPicture | None:
    """A picture of the last map in ``timeline``; None if there is no map."""
    recorded = recorded_map(timeline)
    memory = None if recorded is None else recorded.memory
    if recorded is None or memory is None or not len(memory.segments):
        return None
    snapshot = recorded.snapshot
    picture = draw_picture(memory, snapshot.stacks, snapshot.pools, device=recorded.device)
    return replace(
        picture,
        t_ns=recorded.t_ns,
        missing_segments=recorded.left_out_segments,
        missing_bytes=recorded.left_out_bytes,
    )


def draw_picture(
    memory: MemoryMap, stacks: Stacks, pools: Sequence[PoolId], *, device: int
) -> BlockPicture:
    """A picture of the segments with most memory: ``MOST_ROWS`` rows, ``MOST_CELLS`` cells."""
    sizes = memory.segments.bytes
    which = np.sort((-sizes).argsort(kind="stable")[:MOST_SEGMENTS])
    panel, width = _panels(sizes)
    seen = np.maximum(width // ROW_CELLS, 1)  # smallest visible block
    is_one_cell = sizes * LEAST_SHARE < width
    while True:
        cells = read_cells(memory, np.where(is_one_cell, sizes + 1, seen))
        groups = sorted(_group(memory, cells, which), key=lambda group: -group.total_bytes)
        groups = groups[:MOST_ROWS]
        if sum(group.cells for group in groups) <= MOST_CELLS:
            break
        seen *= 2
    groups.sort(key=lambda group: (-group.bytes, -len(group.begins)))
    return BlockPicture(
        panels=tuple(
            Panel(tuple(_row(memory, stacks, pools, cells, group) for group in alike), least)
            for least, alike in _by_panel(groups, panel, seen)
        ),
        reserved_bytes=memory.reserved_bytes,
        segments=len(sizes),
        device=device,
    )


def _panels(sizes: Numbers) -> tuple[Numbers, Numbers]:
    """The panel of each segment, and the panel's width in bytes.

    A panel holds segments of at least an eighth of its largest one, so small segments can be
    seen beside one of many GiB. The last panel holds all smaller ones. A segment below a
    sixteenth of the panel's width is one cell, because dozens of small segments would each look
    a little different.
    """
    largest = int(sizes.max(initial=1))
    panel = np.log2(largest / np.maximum(sizes, 1)).astype(np.int64) // PANEL_BITS
    panel = np.minimum(panel, PANELS - 1)
    return panel, largest >> PANEL_BITS * panel


def _by_panel(
    groups: list[_RowGroup], panel: Numbers, seen: Numbers
) -> Iterator[tuple[int, list[_RowGroup]]]:
    for _, alike in itertools.groupby(groups, key=lambda group: int(panel[group.segment])):
        found = list(alike)
        yield int(seen[found[0].segment]), found


@dataclass(slots=True)
class _RowGroup:
    """Segments that look the same: the first of them, and the first cell of each (``begins``)."""

    segment: int
    bytes: int
    cells: int
    begins: list[int] = field(default_factory=list)

    @property
    def total_bytes(self) -> int:
        return self.bytes * len(self.begins)


def _group(memory: MemoryMap, cells: Cells, which: Numbers) -> list[_RowGroup]:
    segments = memory.segments
    places = np.searchsorted(cells.segment, [which, which + 1]).T.tolist()
    is_mixed = (cells.states & (cells.states - 1)) > 0
    states = np.where(is_mixed, 0, cells.states)
    shape = np.stack((cells.offset, cells.bytes, states), axis=1)
    kind = np.stack((segments.pool, segments.stream, segments.is_expandable, segments.bytes), 1)
    groups: dict[bytes, _RowGroup] = {}
    for segment, (begin, end) in zip(which.tolist(), places, strict=True):
        key = kind[segment].tobytes() + shape[begin:end].tobytes()
        alike = groups.setdefault(
            key, _RowGroup(segment, int(segments.bytes[segment]), end - begin)
        )
        alike.begins.append(begin)
    return list(groups.values())


def _row(
    memory: MemoryMap, stacks: Stacks, pools: Sequence[PoolId], cells: Cells, group: _RowGroup
) -> PictureRow:
    segments, segment = memory.segments, group.segment
    pool, stream = int(segments.pool[segment]), int(segments.stream[segment])
    return PictureRow(
        bytes=group.bytes,
        segments=len(group.begins),
        pool=f"private pool {pools[pool]}" if pool else "",
        stream=name_stream(stream) if stream else "",
        is_expandable=bool(segments.is_expandable[segment]),
        cells=tuple(_cell(cells, group, number, stacks) for number in range(group.cells)),
    )


def _cell(cells: Cells, group: _RowGroup, number: int, stacks: Stacks) -> PictureCell:
    """Cell ``number`` of segments that look the same, with the bytes of all of them."""
    first, every = group.begins[0] + number, np.array(group.begins) + number
    allocated = int(cells.allocated_bytes[every].sum())
    pending = int(cells.pending_bytes[every].sum())
    stack = int(cells.stack[first])
    return PictureCell(
        offset=int(cells.offset[first]),
        bytes=int(cells.bytes[first]),
        state=_STATES.get(int(cells.states[first]), MIXED),
        allocated_bytes=allocated,
        pending_bytes=pending,
        free_bytes=int(cells.bytes[every].sum()) - allocated - pending,
        blocks=int(cells.blocks[every].sum()),
        owner=name_stack(stacks, stack) if stack >= 0 else "",
    )
