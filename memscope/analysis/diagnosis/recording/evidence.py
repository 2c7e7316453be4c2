"""What a recording knows about one error: counters, the allocator's map, growth, other processes.

Counters decide first what a map cannot show: the card, a limit, and memory outside torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memscope.analysis.diagnosis.balance import Balance, decide
from memscope.analysis.diagnosis.explanation import Diagnosis
from memscope.analysis.diagnosis.failed_request import FailedRequest
from memscope.analysis.diagnosis.snapshot.analysis import SnapshotAnalysis, analyse_snapshot
from memscope.analysis.diagnosis.snapshot.oom_moment import OomMoment, decide_oom
from memscope.analysis.memory_map.fragmentation import buckets
from memscope.analysis.memory_map.holders import name_stack
from memscope.analysis.memory_map.memory_map import SMALL_BYTES, SMALL_SEGMENT_BYTES
from memscope.analysis.memory_map.recorded_map import RecordedMap, recorded_map
from memscope.analysis.metrics.growth import Growth, analyse_growth
from memscope.analysis.timeline.facts import as_count
from memscope.analysis.timeline.rare_rows import OBSERVER, OutOfMemory
from memscope.facts import FIRST_DEVICE, DeviceFact, Fact, StepSource
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.torch_message import TorchKind, TorchMessage
from memscope.interop.oom_log.sizes import Size
from memscope.interop.snapshot.values import Stacks
from memscope.units import torch_size

if TYPE_CHECKING:
    from memscope.analysis.timeline.oom_readings import OtherProcess
    from memscope.analysis.timeline.timeline import Timeline

MAX_BYTES = 1 << 60
# Diagnoses of the counters that the map cannot contradict.
_OF_COUNTERS = (
    Diagnosis.REQUEST_TOO_LARGE,
    Diagnosis.NOT_DEVICE_MEMORY,
    Diagnosis.OVERSUBSCRIBED,
    Diagnosis.OUTSIDE,
)


@dataclass(frozen=True, slots=True)
class RecordedOom:
    """One error with numbers. ``analysis``: of its map, None if it has no map.

    ``growth``: None unless the program's steps kept more and more. ``others``: the other processes
    on the card, if the driver can tell them from this one.
    """

    oom: OutOfMemory
    request: FailedRequest
    map: RecordedMap | None
    analysis: SnapshotAnalysis | None
    growth: Growth | None
    others: tuple[OtherProcess, ...] = ()

    @property
    def balance(self) -> Balance:
        """The counters compared with each other."""
        return self.request.balance

    @property
    def is_of_map(self) -> bool:
        """Whether the map gives the diagnosis."""
        return self.analysis is not None and self.diagnosis == self.analysis.diagnosis

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis by counters, map and growth."""
        by_counters = decide(self.balance)
        if by_counters in _OF_COUNTERS:
            return by_counters
        grown = int(self.growth.rise_bytes) if self.growth else 0
        if self.analysis is None or self.analysis.oom is None:
            missing = self.balance.missing_bytes or 0
            is_short = by_counters in (Diagnosis.SHORTAGE, Diagnosis.MEMORY_FRACTION)
            return Diagnosis.GROWTH if is_short and grown >= missing > 0 else by_counters
        by_map = decide_oom(self.analysis.oom, grown_bytes=grown)
        is_limit = by_map is Diagnosis.SHORTAGE and self.balance.is_capped
        return Diagnosis.MEMORY_FRACTION if is_limit else by_map

    @property
    def asked_by(self) -> str | None:
        """The program's own frame that made the request, None if unknown."""
        frames = self.oom.frames
        if not frames:
            return None
        return name_stack(Stacks(frames=list(frames), stacks=[tuple(range(len(frames)))]), 0)


def read_oom(oom: OutOfMemory, timeline: Timeline) -> RecordedOom:
    """Everything that the recording knows about ``oom``."""
    others = _others(oom, timeline)
    request = replace(make_request(oom, timeline), are_others_known=bool(others))
    map_ = recorded_map(timeline)
    if map_ is not None and map_.t_ns != oom.t_ns:
        map_ = None  # of another error
    analysis = None if map_ is None else _analyse(map_, oom, request.balance)
    return RecordedOom(oom, request, map_, analysis, _growth(oom, timeline), others)


def _others(oom: OutOfMemory, timeline: Timeline) -> tuple[OtherProcess, ...]:
    before = timeline.readings_at_oom
    is_its_own = before is not None and before.t_ns == oom.t_ns
    return before.others_on(max(oom.device, 0)) if before and is_its_own else ()


def make_request(oom: OutOfMemory, timeline: Timeline) -> FailedRequest:
    """The request that failed, by the counters in ``oom``."""
    return request_on(_message(oom), oom.device, timeline)


def request_on(message: TorchMessage, device: int, timeline: Timeline) -> FailedRequest:
    """``message`` on ``device``, with the settings in the recording."""
    name = timeline.fact(DeviceFact.CUDA.of(max(device, 0)), "name") or timeline.fact(
        FIRST_DEVICE, "name"
    )
    context = LogContext(torch_version=_version(timeline))
    settings = timeline.fact(Fact.ALLOCATOR, "settings")
    if isinstance(settings, str):
        context.settings = settings
    unnamed = "the device" if message.device is None else ""
    return FailedRequest(message, Balance(message), context, device_name=str(name or unnamed))


def _message(oom: OutOfMemory) -> TorchMessage:
    def size(key: str) -> Size | None:
        value = as_count(oom.counters.get(key))
        return Size(value) if value is not None and value < MAX_BYTES else None

    is_torch = oom.source == OBSERVER
    requested = oom.requested_bytes
    return TorchMessage(
        TorchKind.CACHING if is_torch else TorchKind.RECORDED,
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
    """The map, analysed like a snapshot's, with this error added."""
    analysis = analyse_snapshot(found.snapshot, found.device)
    split = found.snapshot.settings.get("max_split_size")
    requested = max(oom.requested_bytes, 0)
    moment = OomMoment(
        event=0,
        # Torch reports what it asked the driver for, and small requests share a segment.
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
    """Growth by the program's own steps. In one-second steps, loading a model looks like growth."""
    if timeline.facts.get(Fact.STEP_SOURCE) in (None, StepSource.SECOND):
        return None
    found = analyse_growth(timeline, "allocated").get(max(oom.device, 0))
    return found if found is not None and found.is_notable else None


def growth_sentence(growth: Growth) -> str:
    """How much the steps kept, as a clause."""
    return (
        f"allocated memory grew by {torch_size(round(growth.slope))} a step over "
        f"{growth.steps:,.0f} steps, {torch_size(round(growth.rise_bytes))} in all"
    )
