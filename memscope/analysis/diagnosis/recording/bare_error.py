"""Errors without numbers: was the card full just before, and with what?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memscope.analysis.diagnosis.balance import CONTEXT_BYTES, OUTSIDE_SHARE
from memscope.analysis.diagnosis.explanation import Diagnosis
from memscope.analysis.diagnosis.failed_request import FailedRequest
from memscope.analysis.diagnosis.recording.evidence import request_on
from memscope.facts import DeviceFact
from memscope.interop.oom_log.formats.torch_message import TorchKind, TorchMessage
from memscope.interop.oom_log.sizes import Size

if TYPE_CHECKING:
    from memscope.analysis.timeline.oom_readings import OtherProcess, ReadingsBefore
    from memscope.analysis.timeline.rare_rows import OutOfMemory
    from memscope.analysis.timeline.timeline import Timeline

BARE_KINDS = (TorchKind.BARE, TorchKind.HIDDEN)
# Handles, workspaces and code of libraries take this much at once, or this part of a small card.
ROOM_BYTES = 1 << 30
ROOM_SHARE = 16
PAGE_BYTES = 2 << 20  # the driver gives whole pages, however little is asked for
# Readings come ten times a second: an older one says little about the moment of the error.
MAX_AGE_NS = 10_000_000_000
# Readings further apart than this are not compared.
SAME_NS = 500_000_000


@dataclass(frozen=True, slots=True)
class BareError:
    """An error without numbers. Its message is filled with readings from ``age_ns`` before it.

    ``devices``: where the error may have happened; if there are several, nothing is filled in.
    ``others``: the other processes on the card, () if the driver does not tell them from this one.
    ``mixed``: in that case all listed processes, perhaps with this one. ``split_bytes``: cached
    bytes that torch cannot give back because tensors are in the same segments.
    """

    request: FailedRequest
    devices: tuple[int, ...]
    age_ns: int = 0
    others: tuple[OtherProcess, ...] = ()
    split_bytes: int = 0
    mixed: tuple[OtherProcess, ...] = ()

    @property
    def message(self) -> TorchMessage:
        """The message, with the readings as its numbers."""
        return self.request.message

    @property
    def is_read(self) -> bool:
        """Whether the card was read at all."""
        return self.message.free is not None and self.message.total is not None

    @property
    def needed_bytes(self) -> int:
        """Bytes requested; if unknown, what libraries usually request at once."""
        total = self.message.total.bytes if self.message.total else 0
        wanted = self.request.wanted_bytes
        return max(wanted, PAGE_BYTES) if wanted else min(ROOM_BYTES, total // ROOM_SHARE)

    @property
    def is_full(self) -> bool:
        """Whether the card had less free than that."""
        free = self.message.free
        return free is not None and free.bytes < self.needed_bytes

    @property
    def is_beyond_card(self) -> bool:
        """Whether torch held more than the card has by the readings, which then make no sense."""
        reserved, total = self.message.reserved, self.message.total
        return reserved is not None and total is not None and reserved.bytes > total.bytes

    @property
    def cached_bytes(self) -> int:
        """What torch held unused."""
        return self.request.balance.cached_bytes or 0

    @property
    def releasable_bytes(self) -> int:
        """The part of the cache that torch could have given back."""
        return max(self.cached_bytes - self.split_bytes, 0)

    @property
    def others_bytes(self) -> int | None:
        """What other processes held, with the driver's own part if it is counted with them."""
        balance, listed = self.request.balance, [each.bytes for each in self.others]
        if balance.others_bytes is not None or not listed or None in listed:
            return balance.others_bytes
        return sum(size for size in listed if size is not None)

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis by the readings."""
        if not self.is_full or self.age_ns > MAX_AGE_NS:
            return Diagnosis.UNKNOWN
        message, balance = self.message, self.request.balance
        is_torch_read = balance.cached_bytes is not None
        outside = balance.outside_bytes if is_torch_read else self.others_bytes
        if message.total is None or outside is None or self.is_beyond_card:
            return Diagnosis.UNKNOWN
        own = message.allocated or message.reserved or message.process
        is_large = (outside - CONTEXT_BYTES) * OUTSIDE_SHARE > message.total.bytes
        cached = self.releasable_bytes
        if outside > max(own.bytes if own else 0, cached) or (is_large and outside > cached):
            return Diagnosis.OUTSIDE
        if not is_torch_read:
            return Diagnosis.UNKNOWN
        if cached >= self.needed_bytes:
            return Diagnosis.TORCH_CACHE if self.request.is_library else Diagnosis.UNKNOWN
        return Diagnosis.SHORTAGE


def read_bare_error(message: TorchMessage, oom: OutOfMemory, timeline: Timeline) -> BareError:
    """``message``, read from the text of ``oom``, with the readings before it."""
    before = timeline.readings_at_oom
    if before is None or before.t_ns != oom.t_ns:
        return BareError(request_on(message, oom.device, timeline), ())
    devices = (oom.device,) if oom.device >= 0 else before.devices
    if len(devices) != 1:
        return BareError(request_on(message, oom.device, timeline), devices)
    (device,) = devices
    reading_name = _free_reading(before, device)
    filled = _fill(message, before, device, reading_name, timeline)
    request = request_on(filled, device, timeline)
    others = before.others_on(device)
    splits = before.count("torch.inactive_split_bytes", device) or 0
    return BareError(
        request,
        devices,
        before.age_ns(reading_name, device) or 0,
        others,
        # Expandable segments give back single pages.
        split_bytes=0 if request.context.has_expandable_segments else splits,
        mixed=() if others else before.others.get(device, ()),
    )


def _free_reading(before: ReadingsBefore, device: int) -> str:
    """The reading of free memory: NVML's, or the CUDA runtime's if NVML was not read."""
    has_nvml = before.count("nvml.free_bytes", device) is not None
    return "nvml.free_bytes" if has_nvml else "mem_get_info.free_bytes"


def _fill(
    message: TorchMessage,
    before: ReadingsBefore,
    device: int,
    reading_name: str,
    timeline: Timeline,
) -> TorchMessage:
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
