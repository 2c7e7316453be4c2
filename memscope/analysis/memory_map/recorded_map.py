"""The allocator's map in a recording, in the form of a torch snapshot.

So everything that reads snapshots can read it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from memscope.analysis.memory_map.memory_map import MemoryMap, map_at_end
from memscope.analysis.timeline.facts import as_count
from memscope.analysis.timeline.map_rows import UNKNOWN_STATE, MapRows, MapTable
from memscope.facts import Fact
from memscope.interop.snapshot.snapshot import INACTIVE, Blocks, Segments, Snapshot
from memscope.interop.snapshot.tables import take
from memscope.interop.snapshot.values import Stacks

if TYPE_CHECKING:
    from memscope.analysis.timeline.timeline import Timeline

Numbers = npt.NDArray[np.int64]

_PLAIN = (str, int, float, bool)
_known: WeakKeyDictionary[MapRows, tuple[object, RecordedMap | None]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class RecordedMap:
    """The map at ``t_ns``, the moment of an out-of-memory error.

    ``device``: the device that ran out. ``snapshot``: segments and blocks of all devices,
    without a trace. Segments whose blocks were not all recorded are left out:
    ``left_out_segments`` with ``left_out_bytes``. ``has_owners``: blocks have call stacks.
    """

    t_ns: int
    device: int
    snapshot: Snapshot
    left_out_segments: int
    left_out_bytes: int

    @property
    def memory(self) -> MemoryMap:
        """Segments and blocks of the device that ran out of memory."""
        return map_at_end(self.snapshot, self.device)

    @property
    def has_owners(self) -> bool:
        """Whether call stacks are known: torch's history was on."""
        return bool(self.snapshot.stacks.stacks)


def recorded_map(timeline: Timeline) -> RecordedMap | None:
    """The last map in ``timeline``; None if there is none.

    ``recorded_map(read_timeline(recording)).memory`` is the ``MemoryMap`` of the device that
    ran out of memory.
    """
    rows, fact = timeline.map_rows, timeline.facts.get(Fact.MAP)
    key = rows.version, str(fact)
    known = _known.get(rows)
    if known is None or known[0] != key:  # the live view asks again and again
        known = _known[rows] = key, _make(rows, fact if isinstance(fact, dict) else {})
    return known[1]


def _make(rows: MapRows, fact: dict[str, Any]) -> RecordedMap | None:
    table = rows.table
    if table is None or float(table.bytes.sum(dtype=np.float64)) >= 1 << 62:
        return None
    segments, blocks, missing = _tables(table)
    device = as_count(fact.get("device"))
    if device is None:
        device = _fullest(segments)
    return RecordedMap(
        t_ns=rows.t_ns,
        device=device,
        snapshot=_snapshot(segments, blocks, rows, fact),
        left_out_segments=missing[0] + rows.unkept_segments + _count(fact, "left_out_segments"),
        left_out_bytes=missing[1] + rows.unkept_bytes + _count(fact, "left_out_bytes"),
    )


def _tables(table: MapTable) -> tuple[Segments, Blocks, tuple[int, int]]:
    """Complete segments with their blocks, in order; number and bytes of the segments left out."""
    is_valid = (table.bytes >= 0) & (table.device >= 0)
    rows = take(table, is_valid & table.is_segment)
    rows = take(rows, np.lexsort((rows.address, rows.device)))
    blocks = take(table, is_valid & ~table.is_segment & (table.state != UNKNOWN_STATE))
    blocks = take(blocks, np.lexsort((blocks.address, blocks.device)))
    segment = _segments_of(rows, blocks)
    blocks, segment = take(blocks, segment >= 0), segment[segment >= 0]
    is_whole = _whole_segments(rows, blocks, segment)
    number = np.cumsum(is_whole) - 1
    kept = is_whole[segment]
    return (
        _segment_table(take(rows, is_whole)),
        _block_table(take(blocks, kept), number[segment[kept]]),
        (int((~is_whole).sum()), int(rows.bytes[~is_whole].sum())),
    )


def _segments_of(segments: MapTable, blocks: MapTable) -> Numbers:
    """Row of the segment that contains each block; −1 if none does."""
    row_of_segment = np.full(len(blocks), -1, dtype=np.int64)
    for device in np.unique(segments.device).tolist():
        rows = np.flatnonzero(segments.device == device)
        mine = np.flatnonzero(blocks.device == device)
        starts = segments.address[rows]
        place = np.searchsorted(starts, blocks.address[mine], side="right") - 1
        ends = starts + segments.bytes[rows]
        is_inside = (place >= 0) & (blocks.address[mine] + blocks.bytes[mine] <= ends[place])
        row_of_segment[mine[is_inside]] = rows[place[is_inside]]
    return row_of_segment


def _whole_segments(
    segments: MapTable, blocks: MapTable, segment: Numbers
) -> npt.NDArray[np.bool_]:
    """Which segments are filled by their recorded blocks without a gap."""
    filled = np.zeros(len(segments), dtype=np.int64)
    np.add.at(filled, segment, blocks.bytes)
    ends = np.cumsum(blocks.bytes)
    begins = ends - blocks.bytes
    first = np.searchsorted(segment, segment)  # row of the first block of the same segment
    expected = segments.address[segment] + begins - begins[first] if len(blocks) else begins
    is_whole: npt.NDArray[np.bool_] = (filled == segments.bytes) & (segments.bytes > 0)
    is_whole[segment[blocks.address != expected]] = False
    return is_whole


def _segment_table(rows: MapTable) -> Segments:
    return Segments(
        device=rows.device,
        address=rows.address,
        bytes=rows.bytes,
        stream=rows.stream,
        pool=rows.pool,
        is_small=rows.is_small,
        is_expandable=rows.is_expandable,
    )


def _block_table(rows: MapTable, segment: Numbers) -> Blocks:
    return Blocks(
        segment=segment,
        address=rows.address,
        bytes=rows.bytes,
        requested=np.where(rows.state == INACTIVE, 0, rows.requested),
        state=rows.state,
        stack=np.where(rows.state == INACTIVE, -1, rows.stack),
    )


def _snapshot(segments: Segments, blocks: Blocks, rows: MapRows, fact: dict[str, Any]) -> Snapshot:
    texts: dict[str, int] = {}
    stacks = [
        tuple(texts.setdefault(frame, len(texts)) for frame in stack) for stack in rows.stacks
    ]
    settings = fact.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    return Snapshot(
        segments=segments,
        blocks=blocks,
        traces={},
        stacks=Stacks(frames=list(texts), stacks=stacks),
        pools=rows.pools,
        settings={key: value for key, value in settings.items() if type(value) in _PLAIN},
        schema=_schema(fact.get("torch")),
        annotations=(),
    )


_SCHEMAS = ("2.14", "2.12", "2.10", "2.8", "2.5", "2.3")


def _schema(version: Any) -> str:
    """The oldest torch version whose snapshots have these keys."""
    numbers = str(version).split(".")[:2]
    if len(numbers) == 2 and numbers[0] == "2" and numbers[1].isdecimal():
        minor = int(numbers[1][:4])
        return next((name for name in _SCHEMAS if int(name[2:]) <= minor), "2.1")
    return "2.1"


def _fullest(segments: Segments) -> int:
    if not len(segments):
        return 0
    devices, row = np.unique(segments.device, return_inverse=True)
    total = np.zeros(len(devices), dtype=np.int64)
    np.add.at(total, row.reshape(-1), segments.bytes)
    return int(devices[total.argmax()])


def _count(fact: dict[str, Any], key: str) -> int:
    return as_count(fact.get(key)) or 0
