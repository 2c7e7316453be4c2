"""Ledger lines for memory that torch's allocator reserved."""

from __future__ import annotations

from memscope.analysis.ledger.lines import LedgerLine, absent, divide, read
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import Fact

MODEL = (
    ("weights", "weights"),
    ("gradients", "gradients"),
    ("optimizer", "optimizer state"),
    ("kv", "KV caches"),
)
WATCH = "memscope.watch(model) measures it"


def torch_line(timeline: Timeline, device: int) -> LedgerLine:
    """Reserved bytes, divided into allocated, pending frees, private pools and cache."""
    size = _bytes(timeline, device, "torch.reserved_bytes")
    reserved = read("torch", "torch reserved", size, "torch's counters are not recorded")
    rest = "cache: free inside segments" if _is_expandable(timeline) else "releasable cache"
    return divide(reserved, tuple(_parts(timeline, device)), LedgerLine("torch.cache", rest, None))


def _parts(timeline: Timeline, device: int) -> list[LedgerLine]:
    allocated = _bytes(timeline, device, "torch.allocated_bytes")
    active = _bytes(timeline, device, "torch.active_bytes")
    unread = "torch's counters are not recorded"
    line = read("torch.allocated", "allocated", allocated, unread)
    rest = LedgerLine("torch.rest", "activations, temporaries and all else", None)
    pending = None if active is None or allocated is None else active - allocated
    return [
        divide(line, _model_lines(timeline, device), rest),
        read("torch.pending", "freed, pending on another stream", pending, unread),
        _private_line(timeline, device),
        _split_line(timeline, device),
    ]


def _model_lines(timeline: Timeline, device: int) -> tuple[LedgerLine, ...]:
    return tuple(
        read(f"model.{name}", words, _bytes(timeline, device, f"model.{name}_bytes"), WATCH)
        for name, words in MODEL
    )


def _split_line(timeline: Timeline, device: int) -> LedgerLine:
    words = "free in partly used segments"
    if _is_expandable(timeline):
        return absent("torch.split", words, "expandable segments: counted in the cache")
    size = _bytes(timeline, device, "torch.inactive_split_bytes")
    if size is not None:  # those in private pools are in the line above
        size = max(size - (_bytes(timeline, device, "torch.private_split_bytes") or 0), 0)
    return read("torch.split", words, size, "torch's counters are not recorded")


def _private_line(timeline: Timeline, device: int) -> LedgerLine:
    size = _bytes(timeline, device, "torch.private_free_bytes")
    reason = timeline.fact(Fact.PRIVATE_POOLS, "absent")
    why = str(reason) if reason else "torch's counters do not separate pools"
    return read("torch.private", "free in private pools", size, why)


def _is_expandable(timeline: Timeline) -> bool:
    return bool(timeline.fact(Fact.ALLOCATOR, "is_expandable"))


def _bytes(timeline: Timeline, device: int, reading_name: str) -> int | None:
    reading = timeline.latest(reading_name, device)
    return None if reading is None else int(reading.value)
