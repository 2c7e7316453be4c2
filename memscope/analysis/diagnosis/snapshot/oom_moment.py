"""The last out-of-memory event of a trace, with the map at that moment.

The allocator gives back its releasable cache before it fails, so memory that is free then is pinned
or private. The file says how much the driver had left, but not the card's size or a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memscope.analysis.diagnosis.explanation import Diagnosis
from memscope.analysis.memory_map.fragmentation import Bucket, buckets
from memscope.analysis.memory_map.map_history import map_before
from memscope.analysis.memory_map.memory_map import SMALL_BYTES, SMALL_SEGMENT_BYTES, MemoryMap
from memscope.interop.snapshot.snapshot import ALLOCATED
from memscope.interop.snapshot.trace import OOM, Trace

LARGE_SEGMENT_BYTES = 20 << 20
LARGE_FROM_BYTES = 10 << 20
SEGMENT_ROUNDING_BYTES = 2 << 20
PAGE_BYTES = 2 << 20
# The file does not give the card's size; no card has more than this (AMD's MI355X, in 2025).
LARGEST_CARD_BYTES = 288 << 30


@dataclass(frozen=True, slots=True)
class OomMoment:
    """One out-of-memory event. ``requested_bytes`` is rounded as the allocator does.

    ``device_free_bytes``: what the driver had left, None if the file does not say. ``memory``: the
    map at the event. ``pool``: an index into ``Snapshot.pools``; 0 is the default pool.
    """

    event: int
    requested_bytes: int
    device_free_bytes: int | None
    stream: int
    pool: int
    stack: int
    max_split_bytes: int
    memory: MemoryMap
    buckets: tuple[Bucket, ...]

    @property
    def segment_bytes(self) -> int:
        """Bytes that torch asked the driver for, to serve the request (get_allocation_size)."""
        size = self.requested_bytes
        if size <= SMALL_BYTES:
            return SMALL_SEGMENT_BYTES
        if size < LARGE_FROM_BYTES:
            return LARGE_SEGMENT_BYTES
        return -(-size // SEGMENT_ROUNDING_BYTES) * SEGMENT_ROUNDING_BYTES

    @property
    def has_hidden_limit(self) -> bool:
        """Whether the driver had enough, so that there was a limit not in the file."""
        free = self.device_free_bytes
        return free is not None and free >= self.segment_bytes + PAGE_BYTES

    @property
    def room_bytes(self) -> int:
        """Bytes that the driver could still give, 0 if a hidden limit prevented it."""
        return 0 if self.has_hidden_limit else (self.device_free_bytes or 0)

    @property
    def own(self) -> tuple[Bucket, ...]:
        """Buckets of the request's pool."""
        return tuple(bucket for bucket in self.buckets if bucket.pool == self.pool)

    @property
    def private(self) -> tuple[Bucket, ...]:
        """Buckets of other private pools."""
        return tuple(b for b in self.buckets if b.is_private and b.pool != self.pool)

    @property
    def fitting(self) -> tuple[Bucket, ...]:
        """Buckets with the request's pool, stream and size class."""
        is_small = self.requested_bytes <= SMALL_BYTES
        return tuple(b for b in self.own if b.stream == self.stream and b.is_small == is_small)

    @property
    def free_bytes(self) -> int:
        """Free bytes inside segments of the request's pool, of any stream."""
        return sum(bucket.free_bytes for bucket in self.own)

    @property
    def pending_bytes(self) -> int:
        """Freed bytes in the request's pool that another stream may still use."""
        return sum(bucket.pending_bytes for bucket in self.own)

    @property
    def private_free_bytes(self) -> int:
        """Free bytes inside other private pools."""
        return sum(bucket.free_bytes for bucket in self.private)

    @property
    def largest_free_bytes(self) -> int:
        """The largest free block that could have served the request."""
        return max((bucket.largest_free_bytes for bucket in self.fitting), default=0)

    @property
    def has_fitting_block(self) -> bool:
        """Whether a free block of its pool, stream and size class was large enough."""
        return self.largest_free_bytes >= self.requested_bytes

    @property
    def is_barred(self) -> bool:
        """Whether max_split_size_mb reserves such a block for larger requests."""
        return self.requested_bytes < self.max_split_bytes <= self.largest_free_bytes

    @property
    def most_ever_bytes(self) -> int:
        """Bytes that would have been available without any tensor."""
        return (self.device_free_bytes or 0) + self.memory.reserved_bytes

    @property
    def missing_bytes(self) -> int:
        """Bytes that would have to become free."""
        return max(self.requested_bytes - self.room_bytes - self.free_bytes, 0)


def last_oom(trace: Trace, end: MemoryMap, max_split_bytes: int) -> OomMoment | None:
    """The last out-of-memory event, None if there is none."""
    rows = trace.where(OOM)
    if not len(rows):
        return None
    event = int(rows[-1])
    memory = map_before(end, trace, event)
    free = int(trace.device_free[event])
    return OomMoment(
        event=event,
        requested_bytes=int(trace.bytes[event]),
        device_free_bytes=free if free >= 0 else None,
        stream=int(trace.stream[event]),
        pool=max(int(trace.pool[event]), 0),
        stack=int(trace.stack[event]),
        max_split_bytes=max_split_bytes,
        memory=memory,
        buckets=buckets(memory),
    )


def decide_oom(oom: OomMoment, *, grown_bytes: int = 0) -> Diagnosis:
    """The diagnosis by the map. ``grown_bytes``: what the program's own steps kept."""
    wanted = oom.requested_bytes
    if not wanted:
        return Diagnosis.UNKNOWN
    if grown_bytes and grown_bytes >= max(wanted, oom.memory.bytes_in(ALLOCATED) // 2):
        return Diagnosis.GROWTH
    if oom.has_fitting_block:
        return Diagnosis.FRAGMENTATION if oom.is_barred else Diagnosis.UNKNOWN
    if _largest(oom.fitting, "largest_with_pending_bytes") >= wanted:
        return Diagnosis.PENDING_FREES
    available = oom.room_bytes + oom.free_bytes
    if available >= wanted:
        return Diagnosis.FRAGMENTATION
    if available + oom.pending_bytes >= wanted:
        return Diagnosis.PENDING_FREES
    if available + oom.pending_bytes + oom.private_free_bytes >= wanted:
        return Diagnosis.PRIVATE_POOLS
    if grown_bytes >= oom.missing_bytes > 0:
        return Diagnosis.GROWTH
    if oom.has_hidden_limit:
        return Diagnosis.MEMORY_FRACTION
    return Diagnosis.REQUEST_TOO_LARGE if wanted > LARGEST_CARD_BYTES else Diagnosis.SHORTAGE


def _largest(held: Sequence[Bucket], name: str) -> int:
    sizes: list[int] = [getattr(bucket, name) for bucket in held]
    return max(sizes, default=0)
