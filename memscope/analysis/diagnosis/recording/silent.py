"""Errors without numbers, by the readings just before them: was the card full, and of what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memscope.analysis.diagnosis.balance import CONTEXT_BYTES, OUTSIDE_SHARE
from memscope.analysis.diagnosis.recording.oom import situation_of
from memscope.analysis.diagnosis.situation import Situation
from memscope.facts import DeviceFact
from memscope.interop.oom_log.sizes import Size

if TYPE_CHECKING:
    from memscope.analysis.timeline.oom_readings import OtherProcess, ReadingsBefore
    from memscope.analysis.timeline.rare_rows import OutOfMemory
    from memscope.analysis.timeline.timeline import Timeline
    from memscope.interop.oom_log.formats.torch import OomMessage

SILENT_KINDS = ("bare", "disguise")
# What handles, workspaces and code of libraries take at once; of a small card a share.
ROOM_BYTES = 1 << 30
ROOM_SHARE = 16
PAGE_BYTES = 2 << 20  # the driver gives whole pages, however little is asked for
# Readings come ten times a second: an older one says little about the moment of the error.
MAX_AGE_NS = 10_000_000_000
# Two readings further apart are not set against each other.
SAME_NS = 500_000_000


@dataclass(frozen=True, slots=True)
class SilentError:
    """An error without numbers, its message filled with what was read ``age_ns`` before it.

    ``devices``: those that the error may be of; with several of them nothing is filled in.
    ``others``: the other processes on the card, () where the driver does not tell them from this
    one; ``mixed``: then all that it lists, this one perhaps among them. ``split_bytes``: what
    torch's cache cannot give back, since tensors lie in the same segments.
    """

    situation: Situation
    devices: tuple[int, ...]
    age_ns: int = 0
    others: tuple[OtherProcess, ...] = ()
    split_bytes: int = 0
    mixed: tuple[OtherProcess, ...] = ()

    @property
    def message(self) -> OomMessage:
        """With the readings as its numbers."""
        return self.situation.message

    @property
    def is_read(self) -> bool:
        """Whether the card was read at all."""
        return self.message.free is not None and self.message.total is not None

    @property
    def needed_bytes(self) -> int:
        """What was asked for; where nobody says it, what libraries ask for at once."""
        total = self.message.total.bytes if self.message.total else 0
        wanted = self.situation.wanted
        return max(wanted, PAGE_BYTES) if wanted else min(ROOM_BYTES, total // ROOM_SHARE)

    @property
    def is_full(self) -> bool:
        """Whether the card had less than that."""
        free = self.message.free
        return free is not None and free.bytes < self.needed_bytes

    @property
    def is_beyond_card(self) -> bool:
        """Whether torch is said to hold more than the card has, so that nothing adds up."""
        reserved, total = self.message.reserved, self.message.total
        return reserved is not None and total is not None and reserved.bytes > total.bytes

    @property
    def cached_bytes(self) -> int:
        """What torch held and did not use."""
        return self.situation.balance.cached or 0

    @property
    def releasable_bytes(self) -> int:
        """What torch could have given back of that."""
        return max(self.cached_bytes - self.split_bytes, 0)

    @property
    def others_bytes(self) -> int | None:
        """What other processes held, with what the driver keeps where it is told with them."""
        balance, listed = self.situation.balance, [each.bytes for each in self.others]
        if balance.others is not None or not listed or None in listed:
            return balance.others
        return sum(size for size in listed if size is not None)

    @property
    def diagnosis(self) -> str:
        """What the readings prove."""
        if not self.is_full or self.age_ns > MAX_AGE_NS:
            return "unknown"
        message, balance = self.message, self.situation.balance
        is_torch_read = balance.cached is not None
        outside = balance.outside if is_torch_read else self.others_bytes
        if message.total is None or outside is None or self.is_beyond_card:
            return "unknown"
        own = message.allocated or message.reserved or message.process
        is_large = (outside - CONTEXT_BYTES) * OUTSIDE_SHARE > message.total.bytes
        cached = self.releasable_bytes
        if outside > max(own.bytes if own else 0, cached) or (is_large and outside > cached):
            return "outside"
        if not is_torch_read:
            return "unknown"
        if cached >= self.needed_bytes:
            return "torch_cache" if self.situation.is_library else "unknown"
        return "shortage"


def read_silent(message: OomMessage, oom: OutOfMemory, timeline: Timeline) -> SilentError:
    """``message``, the text of ``oom``, with the readings before it."""
    before = timeline.readings_at_oom
    if before is None or before.t_ns != oom.t_ns:
        return SilentError(situation_of(message, oom.device, timeline), ())
    devices = (oom.device,) if oom.device >= 0 else before.devices
    if len(devices) != 1:
        return SilentError(situation_of(message, oom.device, timeline), devices)
    (device,) = devices
    reading_name = _free_reading(before, device)
    filled = _fill(message, before, device, reading_name, timeline)
    situation = situation_of(filled, device, timeline)
    others = before.others_on(device)
    splits = before.count("torch.inactive_split_bytes", device) or 0
    return SilentError(
        situation,
        devices,
        before.age_ns(reading_name, device) or 0,
        others,
        # Pages of expandable segments are given back one by one.
        split_bytes=0 if situation.context.has_expandable_segments else splits,
        mixed=() if others else before.others.get(device, ()),
    )


def _free_reading(before: ReadingsBefore, device: int) -> str:
    """Of NVML and the CUDA runtime the one that was read; NVML where both were."""
    has_nvml = before.count("nvml.free_bytes", device) is not None
    return "nvml.free_bytes" if has_nvml else "mem_get_info.free_bytes"


def _fill(
    message: OomMessage, before: ReadingsBefore, device: int, reading_name: str, timeline: Timeline
) -> OomMessage:
    age_ns = before.age_ns(reading_name, device) or 0

    def size(name: str) -> Size | None:
        count = before.count(name, device)
        is_older = (before.age_ns(name, device) or 0) > age_ns + SAME_NS
        return None if count is None or is_older else Size(count)

    total = size("nvml.total_bytes") if reading_name.startswith("nvml.") else None
    known = timeline.count_fact(DeviceFact.CUDA.of(device), "total_bytes")
    process, reserved = size("nvml.process_bytes"), size("torch.reserved_bytes")
    listed = () if process else before.others.get(device, ())
    if process and reserved and process.bytes < reserved.bytes:
        process = None
    return replace(
        message,
        device=device,
        total=total or (Size(known) if known else None),
        free=size(reading_name),
        allocated=size("torch.allocated_bytes"),
        reserved=reserved,
        process=process,
        other_processes=tuple(Size(each.bytes) for each in listed if each.bytes),
    )
