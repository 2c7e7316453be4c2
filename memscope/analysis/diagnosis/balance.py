"""The sizes in an out-of-memory message compared with each other, and the one diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from memscope.analysis.diagnosis.explanation import Diagnosis
from memscope.interop.oom_log.formats.torch_message import TorchKind, TorchMessage
from memscope.interop.oom_log.sizes import Size

# The driver gives whole pages of 2 MiB, so smaller differences prove nothing.
PAGE_BYTES = 2 << 20
# A CUDA context and its libraries take up to this much.
CONTEXT_BYTES = 2 << 30
# More than a quarter of the card outside torch is not normal.
OUTSIDE_SHARE = 4
_DECIDED_BY_KIND = {
    TorchKind.NVML: Diagnosis.NVML_UNAVAILABLE,
    TorchKind.HOST: Diagnosis.NOT_DEVICE_MEMORY,
}


@dataclass(frozen=True)
class Balance:
    """What was there for a request. A value is None if the text does not say.

    ``summed_pending_bytes``: active less allocated bytes of a memory summary in the log, else 0.
    """

    message: TorchMessage
    summed_pending_bytes: int = 0

    @cached_property
    def cached_bytes(self) -> int | None:
        """Bytes that torch holds unused, private pools not counted."""
        message = self.message
        if message.kind is TorchKind.MPS or message.reserved is None or message.allocated is None:
            return 0 if message.kind is TorchKind.MPS else None
        return max(message.reserved.bytes - message.allocated.bytes, 0)

    @cached_property
    def pending_bytes(self) -> int:
        """Freed bytes that another stream still uses."""
        active, allocated = self.message.active, self.message.allocated
        if active is not None and allocated is not None:
            pending = active - allocated
            return pending.bytes if pending.bytes > pending.slack_bytes else 0
        return min(self.summed_pending_bytes, self.cached_bytes or 0)

    @property
    def private_free_bytes(self) -> int:
        """Free bytes inside private pools."""
        pools, allocated = self.message.private_pools, self.message.allocated
        return min(pools.bytes, allocated.bytes) if pools and allocated else 0

    @cached_property
    def left_of_limit(self) -> Size | None:
        """What is left of the memory fraction."""
        message = self.message
        held = message.reserved or message.allocated
        if message.limit is None or held is None:
            return None
        left = message.limit - held
        return Size(max(left.bytes, 0), left.slack_bytes)

    @property
    def is_capped(self) -> bool:
        """Whether the memory fraction leaves no more than the card has free."""
        left, free, message = self.left_of_limit, self.message.free, self.message
        if left is None or message.limit is None:
            return False
        if message.total is not None and message.limit.bytes >= message.total.bytes:
            return False
        return free is None or left.bytes <= free.bytes

    @property
    def room(self) -> Size | None:
        """What the driver could still give."""
        return self.left_of_limit if self.is_capped else self.message.free

    @cached_property
    def outside_bytes(self) -> int | None:
        """Bytes that are neither torch's nor free; negative if the numbers disagree."""
        message = self.message
        held = message.reserved or message.allocated
        if message.total is None or message.free is None or held is None:
            return None
        return message.total.bytes - message.free.bytes - held.bytes

    @cached_property
    def own_process_bytes(self) -> int | None:
        """Bytes of the program itself, if it can be found among the listed processes.

        In a container, NVML lists the program under its pid on the host, like another process.
        A listed process that does not fit beside torch's memory must be the program itself.
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
        """Whether the program is listed under another pid."""
        return self.message.process is None and self.own_process_bytes is not None

    @property
    def own_outside_bytes(self) -> int | None:
        """Bytes of the program outside torch: CUDA context, libraries, graphs, NCCL."""
        own, reserved = self.own_process_bytes, self.message.reserved
        return None if own is None or reserved is None else max(own - reserved.bytes, 0)

    @property
    def others_bytes(self) -> int | None:
        """Bytes of other programs and of the driver."""
        own, message = self.own_process_bytes, self.message
        if own is None or message.total is None or message.free is None:
            return None
        return max(message.total.bytes - message.free.bytes - own, 0)

    @property
    def missing_bytes(self) -> int | None:
        """Bytes that would have to become free. Torch's cache counts as free."""
        requested, room = self.message.requested, self.room
        if requested is None or room is None:
            return None
        return max(requested.bytes - room.bytes - (self.cached_bytes or 0), 0)


def decide(balance: Balance) -> Diagnosis:
    """The diagnosis that follows from the numbers.

    Compares in this order: the request with the card, with what is free, what is allocated with
    the card, memory outside torch, and only then unused memory inside torch.
    """
    message = balance.message
    if message.kind in _DECIDED_BY_KIND:
        return _DECIDED_BY_KIND[message.kind]
    if message.is_beyond_exabyte:
        return Diagnosis.REQUEST_TOO_LARGE
    requested, total, room = message.requested, message.total, balance.room
    if requested is None or message.kind in (TorchKind.BARE, TorchKind.HIDDEN):
        return Diagnosis.UNKNOWN
    if total is not None and _is_more(requested, total):
        return Diagnosis.REQUEST_TOO_LARGE
    if room is None:
        return _decide_without_free(message)
    if _is_more(room, requested, PAGE_BYTES):
        return Diagnosis.NOT_DEVICE_MEMORY
    held = message.reserved or message.allocated
    if total is not None and held is not None and _is_more(held, total):
        return Diagnosis.OVERSUBSCRIBED
    if held is None:
        return Diagnosis.OUTSIDE if _is_held_by_others(balance) else Diagnosis.UNKNOWN
    if not balance.is_capped and _is_outside(balance):
        return Diagnosis.OUTSIDE
    return _decide_inside(balance)


def _decide_inside(balance: Balance) -> Diagnosis:
    """A shortage, or free memory that cannot be used."""
    message, room, cached = balance.message, balance.room, balance.cached_bytes or 0
    assert message.requested is not None
    assert room is not None
    wanted = message.requested.bytes
    is_short = room.bytes + cached < wanted or (room.bytes >= wanted and cached < PAGE_BYTES)
    if is_short:
        if balance.private_free_bytes >= wanted:
            return Diagnosis.PRIVATE_POOLS
        return Diagnosis.MEMORY_FRACTION if balance.is_capped else Diagnosis.SHORTAGE
    pending = balance.pending_bytes
    if pending and (room.bytes + cached - pending < wanted or 2 * pending >= cached):
        return Diagnosis.PENDING_FREES
    if balance.private_free_bytes >= max(wanted, cached):
        return Diagnosis.PRIVATE_POOLS
    return Diagnosis.FRAGMENTATION


def _decide_without_free(message: TorchMessage) -> Diagnosis:
    """The diagnosis if the text does not give what was free."""
    total, allocated, requested = message.total, message.allocated, message.requested
    if total is None or allocated is None or requested is None:
        return Diagnosis.UNKNOWN
    if _is_more(allocated, total):
        return Diagnosis.OVERSUBSCRIBED
    is_short = total.bytes - allocated.bytes < requested.bytes
    return Diagnosis.SHORTAGE if is_short else Diagnosis.UNKNOWN


def _is_outside(balance: Balance) -> bool:
    outside, message = balance.outside_bytes, balance.message
    if outside is None or message.total is None or message.free is None:
        return False
    assert message.requested is not None
    beyond = outside - CONTEXT_BYTES
    missing = message.requested.bytes - message.free.bytes
    return beyond * OUTSIDE_SHARE > message.total.bytes and beyond >= missing


def _is_held_by_others(balance: Balance) -> bool:
    others, message = balance.others_bytes, balance.message
    if others is None or message.total is None:
        return False
    return (others - CONTEXT_BYTES) * OUTSIDE_SHARE > message.total.bytes


def _is_more(left: Size, right: Size, margin: int = 0) -> bool:
    """Whether ``left`` is certainly more than ``right``, rounding considered."""
    difference = left - right
    return difference.bytes > difference.slack_bytes + margin
