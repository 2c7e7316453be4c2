"""A caching allocator in miniature that dumps what torch would, with its sizes and splits."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Any

MIB, GIB = 1 << 20, 1 << 30
PoolId = tuple[int, int]
FIRST_ADDRESS = 0x7F0000000000


class FakeOom(Exception):
    """An allocation failed."""


@dataclass
class Block:
    address: int
    size: int
    state: str = "inactive"
    requested: int = 0
    frames: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Segment:
    address: int
    size: int
    stream: int
    pool: PoolId
    is_small: bool
    blocks: list[Block]


def frame(name: str, line: int = 1, filename: str = "train.py") -> dict[str, Any]:
    return {"name": name, "filename": filename, "line": line}


class FakeAllocator:
    """``capacity`` bytes for segments. ``limit``: a memory fraction, which no dump tells of."""

    def __init__(self, capacity: int = 1 << 40, *, limit: int | None = None) -> None:
        self.capacity, self.limit = capacity, limit
        self.segments: dict[int, Segment] = {}
        self.trace: list[dict[str, Any]] = []
        self.next_address, self.now_us = FIRST_ADDRESS, 1_000_000
        self.label = ""

    @property
    def reserved(self) -> int:
        return sum(segment.size for segment in self.segments.values())

    def alloc(self, size: int, *, stream: int = 0, pool: PoolId = (0, 0), by: str = "make") -> int:
        rounded = max(512, -(-size // 512) * 512)
        is_small = rounded <= MIB
        stack = [frame(by), frame("main", 99)]
        found = self._best_fit(rounded, stream, pool, is_small)
        if found is None:
            self._reserve(rounded, stream, pool, is_small, stack)
            found = self._best_fit(rounded, stream, pool, is_small)
        assert found is not None
        segment, block = found
        left = block.size - rounded
        if left >= 512 if is_small else left > MIB:
            place = segment.blocks.index(block)
            segment.blocks.insert(place + 1, Block(block.address + rounded, left))
            block.size = rounded
        block.state, block.requested, block.frames = "active_allocated", size, stack
        self._note("alloc", block.address, size, segment, frames=stack)
        return block.address

    def free(self, address: int, *, completes: bool = True) -> None:
        segment, block = self._find(address)
        self._note("free_requested", address, block.requested, segment, frames=block.frames)
        block.state = "active_pending_free"
        if completes:
            self.complete(address)

    def complete(self, address: int) -> None:
        segment, block = self._find(address)
        self._note("free_completed", address, block.requested, segment, frames=block.frames)
        block.state = "inactive"
        blocks = segment.blocks
        place = blocks.index(block)
        for left, right in ((place, place + 1), (place - 1, place)):
            if left >= 0 and right < len(blocks):
                one, other = blocks[left], blocks[right]
                if one.state == other.state == "inactive":
                    one.size += other.size
                    del blocks[right]

    def empty_cache(self) -> None:
        for address, segment in list(self.segments.items()):
            is_empty = len(segment.blocks) == 1 and segment.blocks[0].state == "inactive"
            if is_empty and segment.pool == (0, 0):
                self._note("segment_free", address, segment.size, segment)
                del self.segments[address]

    def snapshot(self, version: str = "2.12", device: int = 0) -> dict[str, Any]:
        """What torch of that version would dump."""
        number = int(version.partition(".")[2])
        rows = [self._segment_row(segment, device, number) for segment in self.segments.values()]
        rows.sort(key=lambda row: row["address"])
        data: dict[str, Any] = {
            "segments": rows,
            "device_traces": [[] for _ in range(device)]
            + [[_old(dict(entry), number) for entry in self.trace]],
        }
        if number >= 3:
            data["allocator_settings"] = {"max_split_size": -1, "expandable_segments": False}
        if number >= 5:
            data["external_annotations"] = []
        if number >= 14:
            data |= {"host_segments": [], "host_traces": []}
        return data

    def state(self) -> dict[str, Any]:
        """What a map of this moment must come to."""
        blocks = [block for segment in self.segments.values() for block in segment.blocks]

        def total(state: str) -> int:
            return sum(block.size for block in blocks if block.state == state)

        free = [block.size for block in blocks if block.state == "inactive"]
        return {
            "reserved": self.reserved,
            "allocated": total("active_allocated"),
            "pending": total("active_pending_free"),
            "free": sum(free),
            "largest": max(free, default=0),
        }

    def _best_fit(
        self, size: int, stream: int, pool: PoolId, is_small: bool
    ) -> tuple[Segment, Block] | None:
        fits = [
            (block.size, block.address, segment, block)
            for segment in self.segments.values()
            if (segment.stream, segment.pool, segment.is_small) == (stream, pool, is_small)
            for block in segment.blocks
            if block.state == "inactive" and block.size >= size
        ]
        return min(fits, key=lambda fit: fit[:2])[2:] if fits else None

    def _reserve(
        self, size: int, stream: int, pool: PoolId, is_small: bool, stack: list[Any]
    ) -> None:
        wanted = (
            2 * MIB
            if is_small
            else 20 * MIB
            if size < 10 * MIB
            else -(-size // (2 * MIB)) * 2 * MIB
        )
        most = min(self.capacity, self.limit or self.capacity)
        if self.reserved + wanted > most:
            self.empty_cache()
        if self.reserved + wanted > most:
            entry = {"action": "oom", "device_free": self.capacity - self.reserved, "size": size}
            entry |= {"stream": stream, "frames": stack, "pool_id": pool}
            self._append(entry)
            raise FakeOom
        segment = Segment(
            self.next_address, wanted, stream, pool, is_small, [Block(self.next_address, wanted)]
        )
        self.segments[segment.address] = segment
        self.next_address += wanted + 2 * MIB
        self._note("segment_alloc", segment.address, wanted, segment, frames=stack)

    def _find(self, address: int) -> tuple[Segment, Block]:
        starts = sorted(self.segments)
        segment = self.segments[starts[bisect.bisect_right(starts, address) - 1]]
        return segment, next(block for block in segment.blocks if block.address == address)

    def _note(
        self, action: str, address: int, size: int, segment: Segment, frames: Any = None
    ) -> None:
        entry = {"action": action, "addr": address, "size": size, "stream": segment.stream}
        if frames is not None:
            entry["frames"] = frames
        self._append(entry | {"pool_id": segment.pool})

    def _append(self, entry: dict[str, Any]) -> None:
        self.now_us += 7
        extra = {"time_us": self.now_us, "compile_context": "N/A", "user_metadata": self.label}
        self.trace.append(entry | extra)

    def _segment_row(self, segment: Segment, device: int, number: int) -> dict[str, Any]:
        live = [block for block in segment.blocks if block.state != "inactive"]
        row: dict[str, Any] = {
            "device": device,
            "address": segment.address,
            "total_size": segment.size,
            "allocated_size": sum(b.size for b in live if b.state == "active_allocated"),
            "active_size": sum(block.size for block in live),
            "requested_size": sum(block.requested for block in live),
            "stream": segment.stream,
            "segment_type": "small" if segment.is_small else "large",
            "blocks": [_block_row(block, number) for block in segment.blocks],
        }
        if number >= 1:
            row |= {"segment_pool_id": segment.pool, "is_expandable": False, "frames": []}
        return row


def _block_row(block: Block, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "size": block.size,
        "requested_size": block.requested,
        "state": block.state,
    }
    if number >= 1:
        return row | {"address": block.address, "frames": block.frames}
    use = {"addr": block.address, "real_size": block.requested, "frames": block.frames}
    return row | ({"history": [use, {"addr": 1, "real_size": 1}]} if block.frames else {})


def _old(entry: dict[str, Any], number: int) -> dict[str, Any]:
    """An event as torch 2.``number`` wrote it."""
    since = {"pool_id": 12, "user_metadata": 10, "compile_context": 8, "time_us": 2}
    for key, first in since.items():
        if number < first:
            del entry[key]
    return entry
