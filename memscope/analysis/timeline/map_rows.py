"""Rows of the allocator's last map, collected as columns.

All rows of one map have the same time. A row with another time begins a new map.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from memscope.events import Kind
from memscope.interop.snapshot.snapshot import ALLOCATED, INACTIVE, PENDING
from memscope.interop.snapshot.tables import join
from memscope.interop.snapshot.values import DEFAULT_POOL, MAX_BYTES, Names, PoolId, printable

if TYPE_CHECKING:
    from memscope.reader.scanner import Batch

Numbers = npt.NDArray[np.int64]

MAX_ROWS = 250_000  # of segments and blocks together
MAX_STACKS = 20_000
MAX_FRAMES = 12
MAX_FRAME_CHARACTERS = 300
STATES = {
    "active_allocated": ALLOCATED,
    "active_pending_free": PENDING,
    "active_awaiting_free": PENDING,
    "inactive": INACTIVE,
}
UNKNOWN_STATE = -1


@dataclass(frozen=True, slots=True)
class MapTable:
    """Segments and blocks, one value per row, in the order of the file.

    ``state`` is −1 in the row of a segment. ``pool`` and ``stack`` are indices into
    ``MapRows.pools`` and ``MapRows.stacks``; −1 means none.
    """

    device: Numbers
    address: Numbers
    bytes: Numbers
    requested: Numbers
    stream: Numbers
    state: Numbers
    pool: Numbers
    stack: Numbers
    is_segment: npt.NDArray[np.bool_]
    is_small: npt.NDArray[np.bool_]
    is_expandable: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True)
class _Detail:
    """The decoded column ``data`` of a row."""

    state: int = UNKNOWN_STATE
    pool: int = 0
    stack: int = -1
    is_small: bool = False
    is_expandable: bool = False


class MapRows:
    """Collects at most ``MAX_ROWS`` rows of the latest map from batches.

    ``unkept_segments``: segments beyond that bound, with ``unkept_bytes``.
    """

    def __init__(self) -> None:
        self.t_ns = -1
        self._begin(-1)

    def _begin(self, t_ns: int) -> None:
        self.t_ns = t_ns
        self.unkept_segments = self.unkept_bytes = 0
        self._parts: list[MapTable] = []
        self._kept = 0
        self._pools = Names[PoolId](first=DEFAULT_POOL)
        self._stacks: dict[tuple[str, ...], int] = {}

    def add(self, batch: Batch) -> None:
        """Keep the rows of the latest map in ``batch``."""
        kind = batch["kind"]
        rows = np.flatnonzero((kind == Kind.SEGMENT) | (kind == Kind.BLOCK))
        if not len(rows):
            return
        times = batch["t_ns"][rows]
        if times.max() > self.t_ns:
            self._begin(int(times.max()))
        rows = rows[times == self.t_ns]
        kept = rows[: max(MAX_ROWS - self._kept, 0)]
        left = rows[len(kept) :]
        left = left[kind[left] == Kind.SEGMENT]
        self.unkept_segments += len(left)
        self.unkept_bytes += int(np.clip(batch["bytes"][left], 0, MAX_BYTES).sum())
        self._kept += len(kept)
        if len(kept):
            self._parts.append(self._table(batch, kept))

    @property
    def table(self) -> MapTable | None:
        """The rows kept; None if there is no map."""
        return join(self._parts) if self._parts else None

    @property
    def version(self) -> tuple[int, int, int]:
        """A key that changes whenever rows arrive."""
        return self.t_ns, self._kept, self.unkept_segments

    @property
    def pools(self) -> tuple[PoolId, ...]:
        """Memory pools by index; 0 is the default pool."""
        return self._pools.values

    @property
    def stacks(self) -> list[tuple[str, ...]]:
        """Call stacks by index, the innermost frame first."""
        return list(self._stacks)

    def _table(self, batch: Batch, rows: Numbers) -> MapTable:
        size = np.clip(batch["bytes"][rows], -1, MAX_BYTES)
        value = batch["value"][rows]  # bytes requested
        requested = np.where((value >= 0) & (value < size), value, size)
        encoded = batch.record.column("data").take(rows).dictionary_encode()
        codes = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy()
        details = [*map(self._detail, encoded.dictionary.to_pylist()), _Detail()]

        def column(name: str, kind: type = np.int64) -> npt.NDArray[Any]:
            values: npt.NDArray[Any] = np.array(
                [getattr(detail, name) for detail in details], dtype=kind
            )
            return np.asarray(values[codes])

        return MapTable(
            device=batch["device"][rows].astype(np.int64),
            address=np.minimum(batch["address"][rows], 1 << 62).astype(np.int64),
            bytes=size,
            requested=requested.astype(np.int64),
            stream=batch["stream"][rows],
            state=column("state"),
            pool=column("pool"),
            stack=column("stack"),
            is_segment=batch["kind"][rows] == Kind.SEGMENT,
            is_small=column("is_small", bool),
            is_expandable=column("is_expandable", bool),
        )

    def _detail(self, text: str) -> _Detail:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return _Detail()
        if not isinstance(data, dict):
            return _Detail()
        state = data.get("state")
        return _Detail(
            state=STATES.get(state, UNKNOWN_STATE) if isinstance(state, str) else UNKNOWN_STATE,
            pool=self._pool(data.get("pool")),
            stack=self._stack(data.get("frames")),
            is_small=data.get("type") == "small",
            is_expandable=data.get("is_expandable") is True,
        )

    def _pool(self, value: Any) -> int:
        if not isinstance(value, list) or len(value) != 2 or set(map(type, value)) != {int}:
            return 0
        first, second = value
        return self._pools.code((first, second)) if max(map(abs, value)) < 1 << 63 else 0

    def _stack(self, value: Any) -> int:
        if not isinstance(value, list) or set(map(type, value)) != {str}:
            return -1
        frames = tuple(printable(text[:MAX_FRAME_CHARACTERS]) for text in value[:MAX_FRAMES])
        if frames not in self._stacks and len(self._stacks) >= MAX_STACKS:
            return -1
        return self._stacks.setdefault(frames, len(self._stacks))
