"""The summary of a recording: facts, metrics, verdicts, and sentences that explain them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memscope.analysis.ledger.ledger import Ledger, make_ledgers
from memscope.analysis.limits.limits import RECORDING, Limit, Verdict, judge
from memscope.analysis.metrics.measure import measure
from memscope.analysis.metrics.memory import find_devices, held_by_device, host_bytes
from memscope.analysis.metrics.metric import Metric
from memscope.analysis.summary.sentence import Sentence
from memscope.analysis.summary.sentences import write_sentences
from memscope.analysis.timeline.facts import Device, name_devices
from memscope.analysis.timeline.layers import LayerMemory
from memscope.analysis.timeline.step_numbers import StepCounts
from memscope.analysis.timeline.timeline import Timeline
from memscope.format.header import Header
from memscope.reader.scanner import State
from memscope.units import format_bytes

MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything that a screen shows as a number comes from here or from the timeline.

    ``devices``: by index, as the program named them or torch used them. ``device_peaks``: GPU → the
    most held there; empty where not measured. ``host_bytes``: the most resident on the host.
    ``own_steps``: the number of ``steps`` that the program itself showed.
    """

    header: Header
    state: State
    facts: Mapping[str, Any]
    metrics: Mapping[str, Metric]
    verdicts: tuple[Verdict, ...]
    sentences: tuple[Sentence, ...]
    ledgers: tuple[Ledger, ...]
    layers: tuple[LayerMemory, ...]
    devices: Mapping[int, Device]
    device_peaks: Mapping[int, int]
    host_bytes: int | None
    batches: int
    events: int
    steps: int
    own_steps: int
    warmup_steps: int
    other_steps: int
    step_counts: StepCounts

    @property
    def device(self) -> Device | None:
        """The first device; None if there is none."""
        return next(iter(self.devices.values()), None)

    @property
    def used_devices(self) -> tuple[Device, ...]:
        """Devices on which memory was held; all devices if that was not measured."""
        held = [self.devices[index] for index in self.devices if self.device_peaks.get(index)]
        return tuple(held or self.devices.values())

    @property
    def device_name(self) -> str:
        """The used devices: "H200", "2 × H200" or "H200 and 1 more"; empty if there is none."""
        return name_devices(self.used_devices)

    @property
    def device_bytes(self) -> int | None:
        """The peaks of all GPUs, added up; None if not measured."""
        return sum(self.device_peaks.values()) if self.device_peaks else None

    @property
    def held_words(self) -> str:
        """``device_bytes`` as text: "17.0 GiB on 2 GPUs"."""
        if self.device_bytes is None:
            return "not measured"
        count = sum(size > 0 for size in self.device_peaks.values())
        return format_bytes(self.device_bytes) + (f" on {count} GPUs" if count > 1 else "")

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return {
            "state": self.state.name,
            "is_partial": self.state.is_partial,
            "left_out": list(self.state.left_out),
            "batches": self.batches,
            "events": self.events,
            "steps": self.steps,
            "warmup_steps": self.warmup_steps,
            "other_steps": self.other_steps,
            "lost_events": self.state.lost_rows,
            "lost_bytes": self.state.lost_bytes,
            "older_events": self.state.removed_rows,
            "summed_events": self.state.thinned_rows,
            "whole_from_s": self.state.whole_from_ns / 1e9,
            "facts": _plain(self.facts),
            "metrics": {name: _metric(metric) for name, metric in self.metrics.items()},
            "limits": [_verdict(verdict) for verdict in self.verdicts],
            "ledger": [ledger.to_json() for ledger in self.ledgers],
            "layers": [layer.to_json() for layer in self.layers],
            "sentences": [sentence.as_json() for sentence in self.sentences],
        }


def summarize(
    timeline: Timeline, state: State, *, limits: Sequence[Limit] = (), path: str = RECORDING
) -> Summary:
    """Summarize ``timeline``, which was read from a recording in ``state``.

    ``path``: the name of the recording in advice.
    """
    measured = measure(timeline, limits)
    verdicts = judge(measured, limits)
    own = timeline.own_steps
    return Summary(
        header=timeline.header,
        state=state,
        facts=dict(timeline.facts),
        metrics=measured,
        verdicts=tuple(replace(each, advice=each.advise(path)) for each in verdicts),
        sentences=write_sentences(timeline, state),
        ledgers=make_ledgers(timeline),
        layers=timeline.layer_memory,
        devices=find_devices(timeline),
        device_peaks=held_by_device(timeline),
        host_bytes=host_bytes(timeline),
        batches=timeline.batches,
        events=timeline.events,
        steps=len(timeline.steps),
        own_steps=len(own),
        warmup_steps=timeline.warmup_steps,
        other_steps=timeline.other_steps,
        step_counts=timeline.step_counts,
    )


def _metric(metric: Metric) -> dict[str, Any]:
    if metric.value is not None:
        of = {"of": metric.device_words} if metric.device_words else {}
        return {"value": metric.value, "unit": metric.unit} | of
    return {
        "value": None,
        "unit": metric.unit,
        "reason": metric.reason,
        "is_applicable": metric.is_applicable,
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "limit": verdict.limit,
        "value": verdict.value,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "advice": verdict.advice or None,
        "is_named": verdict.is_named,
    }


def _plain(data: Any, depth: int = 0) -> Any:
    """``data`` without numbers that JSON cannot hold, at most ``MAX_DEPTH`` levels deep."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {str(key): _plain(value, depth + 1) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value, depth + 1) for value in data]
    return data
