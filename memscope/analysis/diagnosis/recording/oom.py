"""One out-of-memory error of a recording: its counters, and what the map of that moment proves.

What a map cannot know goes first: the card, a limit, and what lies outside torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memscope.analysis.diagnosis.balance import Balance, decide
from memscope.analysis.diagnosis.situation import Situation, torch_size
from memscope.analysis.diagnosis.snapshot.analysis import SnapshotAnalysis, analyse_snapshot
from memscope.analysis.diagnosis.snapshot.oom import OomMoment, decide_oom
from memscope.analysis.memory_map.fragmentation import buckets
from memscope.analysis.memory_map.holders import name_stack
from memscope.analysis.memory_map.memory_map import SMALL_BYTES, SMALL_SEGMENT_BYTES
from memscope.analysis.memory_map.recorded_map import RecordedMap, recorded_map
from memscope.analysis.metrics.growth import Growth, analyse_growth
from memscope.analysis.timeline.facts import as_count
from memscope.analysis.timeline.rare_rows import OutOfMemory
from memscope.facts import FIRST_DEVICE, DeviceFact, Fact, StepSource
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.torch import OomMessage
from memscope.interop.oom_log.sizes import Size
from memscope.interop.snapshot.values import Stacks

if TYPE_CHECKING:
    from memscope.analysis.timeline.oom_readings import OtherProcess
    from memscope.analysis.timeline.timeline import Timeline

MAX_BYTES = 1 << 60
# What the counters decide against the map, which does not carry them.
_OF_COUNTERS = ("request_too_large", "not_device_memory", "oversubscribed", "outside")


@dataclass(frozen=True, slots=True)
class RecordedOom:
    """``found``: the map's analysis, None where this error has no map.

    ``growth``: what the program's own steps kept, where they kept more and more. ``others``: the
    other processes on the card, where the driver tells them from this one.
    """

    oom: OutOfMemory
    situation: Situation
    map: RecordedMap | None
    found: SnapshotAnalysis | None
    growth: Growth | None
    others: tuple[OtherProcess, ...] = ()

    @property
    def balance(self) -> Balance:
        """Its counters against each other."""
        return self.situation.balance

    @property
    def is_of_map(self) -> bool:
        """Whether the map has the say."""
        return self.found is not None and self.diagnosis == self.found.diagnosis

    @property
    def diagnosis(self) -> str:
        """What the numbers prove."""
        by_counters = decide(self.balance)
        if by_counters in _OF_COUNTERS:
            return by_counters
        grown = int(self.growth.rise_bytes) if self.growth else 0
        if self.found is None or self.found.oom is None:
            missing = self.balance.missing or 0
            is_short = by_counters in ("shortage", "memory_fraction")
            return "growth" if is_short and grown >= missing > 0 else by_counters
        by_map = decide_oom(self.found.oom, grown_bytes=grown)
        return "memory_fraction" if by_map == "shortage" and self.balance.is_capped else by_map

    @property
    def asked_by(self) -> str | None:
        """The program's own frame that asked; None where it is not known."""
        frames = self.oom.frames
        if not frames:
            return None
        return name_stack(Stacks(frames=list(frames), stacks=[tuple(range(len(frames)))]), 0)


def read_oom(oom: OutOfMemory, timeline: Timeline) -> RecordedOom:
    """``oom`` with all that the recording knows of it."""
    situation = make_situation(oom, timeline)
    found = recorded_map(timeline)
    is_its_map = found is not None and found.t_ns == oom.t_ns
    analysis = _analyse(found, oom, situation.balance) if found and is_its_map else None
    growth, others = _growth(oom, timeline), _others(oom, timeline)
    return RecordedOom(oom, situation, found if is_its_map else None, analysis, growth, others)


def _others(oom: OutOfMemory, timeline: Timeline) -> tuple[OtherProcess, ...]:
    before = timeline.readings_at_oom
    is_its_own = before is not None and before.t_ns == oom.t_ns
    return before.others_on(max(oom.device, 0)) if before and is_its_own else ()


def make_situation(oom: OutOfMemory, timeline: Timeline) -> Situation:
    """The error as advice is made from it; torch's own is told apart from our runner's."""
    return situation_of(_message(oom), oom.device, timeline)


def situation_of(message: OomMessage, device: int, timeline: Timeline) -> Situation:
    """``message`` on ``device`` among the settings that the recording names."""
    name = timeline.fact(DeviceFact.CUDA.of(max(device, 0)), "name") or timeline.fact(
        FIRST_DEVICE, "name"
    )
    context = LogContext(torch_version=_version(timeline))
    settings = timeline.fact(Fact.ALLOCATOR, "settings")
    if isinstance(settings, str):
        context.settings = settings
    unnamed = "the device" if message.device is None else ""
    return Situation(message, Balance(message), context, device_name=str(name or unnamed))


def _message(oom: OutOfMemory) -> OomMessage:
    def size(key: str) -> Size | None:
        value = as_count(oom.counters.get(key))
        return Size(value) if value is not None and value < MAX_BYTES else None

    is_torch = oom.source == "observer"
    requested = oom.requested_bytes
    return OomMessage(
        "torch" if is_torch else "recorded",
        requested=Size(requested) if 0 <= requested < MAX_BYTES else None,
        total=size("total"),
        free=size("free"),
        allocated=size("allocated"),
        reserved=size("reserved"),
        active=size("active"),
        limit=size("limit"),
        is_sentence=is_torch,
    )


def _version(timeline: Timeline) -> tuple[int, ...]:
    match = re.match(r"(\d{1,4})\.(\d{1,4})", str(timeline.fact(Fact.MAP, "torch")))
    return (int(match[1]), int(match[2])) if match else ()


def _analyse(found: RecordedMap, oom: OutOfMemory, balance: Balance) -> SnapshotAnalysis:
    """The map as that of a snapshot, with this error in it."""
    analysis = analyse_snapshot(found.snapshot, found.device)
    split = found.snapshot.settings.get("max_split_size")
    requested = max(oom.requested_bytes, 0)
    moment = OomMoment(
        event=0,
        # Torch tells what it asked the driver for: small requests share a segment.
        requested_bytes=SMALL_BYTES if requested == SMALL_SEGMENT_BYTES else requested,
        device_free_bytes=balance.room.bytes if balance.room else None,
        stream=max(oom.stream, 0),
        pool=0,
        stack=-1,
        max_split_bytes=split if type(split) is int and 0 < split < 1 << 50 else 0,
        memory=analysis.memory,
        buckets=buckets(analysis.memory),
    )
    return replace(analysis, oom=moment)


def _growth(oom: OutOfMemory, timeline: Timeline) -> Growth | None:
    """Growth there by steps of the program's own: loading a model grows by the second as well."""
    if timeline.facts.get(Fact.STEP_SOURCE) in (None, StepSource.SECOND):
        return None
    found = analyse_growth(timeline, "allocated").get(max(oom.device, 0))
    return found if found is not None and found.is_plain else None


def growth_sentence(growth: Growth) -> str:
    """What the steps kept, in numbers."""
    return (
        f"allocated memory grows by {torch_size(round(growth.slope))} a step over "
        f"{growth.steps:,.0f} steps, {torch_size(round(growth.rise_bytes))} in all"
    )
