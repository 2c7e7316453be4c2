"""Where each kind of event lies on Perfetto's time line, and what it is called there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memscope.events import Kind
from memscope.interop.perfetto.encoding import BYTES_UNIT, COUNT_UNIT, Label, Value

if TYPE_CHECKING:
    from memscope.reader.scanner import Batch

ENDED, BEGAN, QUEUED = range(3)  # what the time of a row is; QUEUED: when the device was asked
_DEVICE_TIME = (
    "Time on the device, placed on the program's clock: each begins when it was issued, or where "
    "the one before it ended, which is the earliest that it can have been."
)


@dataclass(frozen=True, slots=True)
class Place:
    """The track of a kind: its name, its place among all, and what the time of its rows is."""

    words: str
    rank: int
    time: int = ENDED
    about: str = ""


RECORDING = Place("recording", 0)
COUNTERS_RANK, _UNKNOWN_RANK = 100, 200
_HOST, _POOL, _DRIVER = Place("host loads", 9, BEGAN), Place("weight pool", 10), Place("driver", 11)
_KV, _REQUESTS = Place("KV blocks", 15), Place("requests", 16)
_PLACES: dict[int, Place] = {
    Kind.PHASE: Place("phases", 1),
    Kind.MARK: Place("marks", 2),
    Kind.OOM: Place("out of memory", 3),
    Kind.STEP: Place("steps", 4),
    Kind.LAYER: Place("layers", 5, QUEUED, _DEVICE_TIME),
    Kind.WAIT: Place("waits for uploads", 6, BEGAN),
    Kind.UPLOAD: Place("uploads", 7, QUEUED, _DEVICE_TIME),
    Kind.EVICT: Place("evictions", 8),
    Kind.HOST_LOAD: _HOST,
    Kind.HOST_RELEASE: _HOST,
    Kind.POOL_HIT: _POOL,
    Kind.POOL_MISS: _POOL,
    Kind.POOL_RETURN: _POOL,
    Kind.POOL_OVERFLOW: _POOL,
    Kind.DEVICE_MALLOC: _DRIVER,
    Kind.DEVICE_FREE: _DRIVER,
    Kind.ALLOCATOR_FLUSH: Place("allocator flushes", 12),
    Kind.ALLOC_RETRY: Place("allocation retries", 13),
    Kind.MODULE_LOAD: Place("modules loaded", 14),
    Kind.KV_BLOCK_ALLOC: _KV,
    Kind.KV_BLOCK_FREE: _KV,
    Kind.PREFIX_HIT: _KV,
    Kind.PREFIX_EVICT: _KV,
    Kind.KV_SWAP: _KV,
    Kind.REQUEST_SUBMIT: _REQUESTS,
    Kind.REQUEST_ADMIT: _REQUESTS,
    Kind.REQUEST_FINISH: _REQUESTS,
    Kind.REQUEST_REJECT: _REQUESTS,
    Kind.REQUEST_PREEMPT: _REQUESTS,
    Kind.DROPPED: Place("dropped events", 17),
    Kind.FACT: Place("facts", 18),
}
# The allocator's map is one moment of many thousand rows, which a time line cannot show.
MAP_KINDS = frozenset((Kind.SEGMENT, Kind.BLOCK))
_OF_LAYERS = frozenset((Kind.LAYER, Kind.WAIT, Kind.UPLOAD, Kind.EVICT, Kind.HOST_LOAD))
_NAMED = frozenset((Kind.PHASE, Kind.MARK, Kind.FACT, Kind.MODULE_LOAD))
_UNITS: dict[str, int | str] = {"bytes": BYTES_UNIT, "ratio": "ratio", "s": "s", "ms": "ms"}


def find_place(kind: int, kind_name: str) -> Place:
    """The track of a kind; one that this version does not know has its own."""
    return _PLACES.get(kind) or Place(kind_name, _UNKNOWN_RANK)


def find_unit(reading_name: str, *, is_bytes: bool) -> int | str:
    """The unit of a reading's readings: the end of its name tells."""
    return BYTES_UNIT if is_bytes else _UNITS.get(reading_name.rpartition("_")[2], COUNT_UNIT)


class Rows:
    """A batch as lists, which are quick to read one row after another."""

    def __init__(self, batch: Batch) -> None:
        self._lists: dict[str, list[Any]] = {}
        self._batch = batch
        codes, names = batch.names
        self._codes: list[int] = codes.tolist()
        self._names: list[str] = [*names, ""]  # the last is that of code −1
        self._data = batch.record.column("data").to_pylist()

    def __getitem__(self, column: str) -> list[Any]:
        found = self._lists.get(column)
        if found is None:
            found = self._lists[column] = self._batch[column].tolist()
        return found

    def name(self, row: int) -> str:
        """Name of a row; empty where it has none."""
        return self._names[self._codes[row]]

    def label(self, row: int, kind: int, kind_name: str) -> Label:
        """What a row is called, and its columns, those that it has."""
        name, step, layer = self.name(row), self["step"][row], self["layer"][row]
        if kind == Kind.STEP:
            title = f"step {step} ({name})" if name else f"step {step}"
        elif kind in _OF_LAYERS and layer >= 0:
            title = f"layer {layer}"
        else:
            title = name if name and kind in _NAMED else kind_name
        return Label(title, kind_name, self._arguments(row, "" if name == title else name))

    def _arguments(self, row: int, name: str) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for column in ("step", "layer", "bytes", "request", "stream"):
            number = self[column][row]
            if number >= 0:
                found[column] = number
        if name:
            found["name"] = name
        if math.isfinite(self["value"][row]):
            found["value"] = self["value"][row]
        if self["address"][row]:
            found["address"] = hex(self["address"][row])
        if self._data[row] is not None:
            found["data"] = self._data[row]
        return found
