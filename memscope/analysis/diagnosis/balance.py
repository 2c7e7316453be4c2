"""The numbers of an out-of-memory message set against each other, and the one diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from memscope.interop.oom_log.formats.torch import OomMessage
from memscope.interop.oom_log.sizes import Size

# The driver hands out pages of 2 MiB: what is free beyond the request by less is no evidence.
PAGE_BYTES = 2 << 20
# What a CUDA context and its libraries take by themselves.
CONTEXT_BYTES = 2 << 30
OUTSIDE_SHARE = 4


@dataclass(frozen=True)
class Balance:
    """What was there for a request; None where the text does not say.

    ``summed_pending_bytes``: active less allocated, where a memory summary in the log says so.
    """

    message: OomMessage
    summed_pending_bytes: int = 0

    @cached_property
    def cached(self) -> int | None:
        """Bytes that torch holds and does not use, outside private pools."""
        message = self.message
        if message.kind == "mps" or message.reserved is None or message.allocated is None:
            return 0 if message.kind == "mps" else None
        return max(message.reserved.bytes - message.allocated.bytes, 0)

    @cached_property
    def pending(self) -> int:
        """Bytes freed that another stream still uses."""
        active, allocated = self.message.active, self.message.allocated
        if active is not None and allocated is not None:
            pending = active - allocated
            return pending.bytes if pending.bytes > pending.slack_bytes else 0
        return min(self.summed_pending_bytes, self.cached or 0)

    @property
    def private_free(self) -> int:
        """Bytes that are free inside private pools."""
        pools, allocated = self.message.private_pools, self.message.allocated
        return min(pools.bytes, allocated.bytes) if pools and allocated else 0

    @cached_property
    def left_of_limit(self) -> Size | None:
        """What a memory fraction leaves of itself."""
        message = self.message
        held = message.reserved or message.allocated
        if message.limit is None or held is None:
            return None
        left = message.limit - held
        return Size(max(left.bytes, 0), left.slack_bytes)

    @property
    def is_capped(self) -> bool:
        """Whether a memory fraction leaves no more than the card does."""
        left, free, message = self.left_of_limit, self.message.free, self.message
        if left is None or message.limit is None:
            return False
        if message.total is not None and message.limit.bytes >= message.total.bytes:
            return False
        return free is None or left.bytes <= free.bytes

    @property
    def room(self) -> Size | None:
        """What the driver could still have given."""
        return self.left_of_limit if self.is_capped else self.message.free

    @cached_property
    def outside(self) -> int | None:
        """Bytes that neither torch nor the free list holds; negative where numbers disagree."""
        message = self.message
        held = message.reserved or message.allocated
        if message.total is None or message.free is None or held is None:
            return None
        return message.total.bytes - message.free.bytes - held.bytes

    @cached_property
    def own_process(self) -> int | None:
        """Bytes of the program itself, where one of the processes listed must be it.

        Inside a PID namespace NVML lists the program by its pid on the host, as if it were
        another: a process that does not fit beside what torch holds is the program.
        """
        message = self.message
        if message.process is not None:
            return message.process.bytes
        if message.total is None or message.free is None or message.reserved is None:
            return None
        space = message.total.bytes - message.free.bytes
        slack = 4 * message.reserved.slack_bytes + message.total.slack_bytes
        for other in message.other_processes:
            if message.reserved.bytes + other.bytes > space + slack + PAGE_BYTES:
                return other.bytes if other.bytes >= message.reserved.bytes - slack else None
        return None

    @property
    def is_own_process_renamed(self) -> bool:
        """Whether the program is listed by another pid."""
        return self.message.process is None and self.own_process is not None

    @property
    def own_outside(self) -> int | None:
        """Bytes of the program outside torch: context, libraries, graphs, NCCL."""
        own, reserved = self.own_process, self.message.reserved
        return None if own is None or reserved is None else max(own - reserved.bytes, 0)

    @property
    def others(self) -> int | None:
        """Bytes of other programs and of the driver."""
        own, message = self.own_process, self.message
        if own is None or message.total is None or message.free is None:
            return None
        return max(message.total.bytes - message.free.bytes - own, 0)

    @property
    def missing(self) -> int | None:
        """Bytes that would have to become free; what is cached counts as free."""
        requested, room = self.message.requested, self.room
        if requested is None or room is None:
            return None
        return max(requested.bytes - room.bytes - (self.cached or 0), 0)


def decide(balance: Balance) -> str:
    """The diagnosis that the numbers prove.

    First the request against the card, then a memory fraction, what is free, what is allocated
    against the card, what is outside torch; only then what lies unused inside torch.
    """
    message = balance.message
    if message.kind in ("nvml", "host"):
        return "nvml_unavailable" if message.kind == "nvml" else "not_device_memory"
    if message.is_beyond_exabyte:
        return "request_too_large"
    requested, total, room = message.requested, message.total, balance.room
    if requested is None or message.kind in ("bare", "disguise"):
        return "unknown"
    if total is not None and _is_more(requested, total):
        return "request_too_large"
    if room is None:
        return _decide_without_free(message)
    if _is_more(room, requested, PAGE_BYTES):
        return "not_device_memory"
    held = message.reserved or message.allocated
    if total is not None and held is not None and _is_more(held, total):
        return "oversubscribed"
    if held is None:
        return "outside" if _is_held_by_others(balance) else "unknown"
    if not balance.is_capped and _is_outside(balance):
        return "outside"
    return _decide_inside(balance)


def _decide_inside(balance: Balance) -> str:
    """Between a shortage and memory that is free but of no use."""
    message, room, cached = balance.message, balance.room, balance.cached or 0
    assert message.requested is not None
    assert room is not None
    wanted = message.requested.bytes
    is_short = room.bytes + cached < wanted or (room.bytes >= wanted and cached < PAGE_BYTES)
    if is_short:
        if balance.private_free >= wanted:
            return "private_pools"
        return "memory_fraction" if balance.is_capped else "shortage"
    pending = balance.pending
    if pending and (room.bytes + cached - pending < wanted or 2 * pending >= cached):
        return "pending_frees"
    if balance.private_free >= max(wanted, cached):
        return "private_pools"
    return "fragmentation"


def _decide_without_free(message: OomMessage) -> str:
    """What can be said where the text does not give what was free."""
    total, allocated, requested = message.total, message.allocated, message.requested
    if total is None or allocated is None or requested is None:
        return "unknown"
    if _is_more(allocated, total):
        return "oversubscribed"
    return "shortage" if total.bytes - allocated.bytes < requested.bytes else "unknown"


def _is_outside(balance: Balance) -> bool:
    outside, message = balance.outside, balance.message
    if outside is None or message.total is None or message.free is None:
        return False
    assert message.requested is not None
    beyond = outside - CONTEXT_BYTES
    missing = message.requested.bytes - message.free.bytes
    return beyond * OUTSIDE_SHARE > message.total.bytes and beyond >= missing


def _is_held_by_others(balance: Balance) -> bool:
    others, message = balance.others, balance.message
    if others is None or message.total is None:
        return False
    return (others - CONTEXT_BYTES) * OUTSIDE_SHARE > message.total.bytes


def _is_more(left: Size, right: Size, margin: int = 0) -> bool:
    """Whether ``left`` is more than ``right``, whatever their rounding hides."""
    difference = left - right
    return difference.bytes > difference.slack_bytes + margin
