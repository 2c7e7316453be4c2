"""The timeline: a recording folded batch by batch in one pass, for all metrics and views.

The live view uses it too. The result does not depend on how events are split into batches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from memscope.analysis.timeline.counters import CounterFold, DeviceCounters
from memscope.analysis.timeline.facts import as_count, count_of, field_of, read_model
from memscope.analysis.timeline.flushes import Flushes, FlushFold
from memscope.analysis.timeline.layers import LayerFold, LayerMemory
from memscope.analysis.timeline.map_rows import MapRows
from memscope.analysis.timeline.oom_readings import OomReadings, ReadingsBefore
from memscope.analysis.timeline.rare_rows import (
    MAX_KEPT,
    Mark,
    OutOfMemory,
    Phase,
    RareRows,
)
from memscope.analysis.timeline.reading_fold import DeviceReadings, ReadingFold
from memscope.analysis.timeline.readings import DriverBytes, Held, Reading, Readings, read_held
from memscope.analysis.timeline.samples import Samples, decode_samples
from memscope.analysis.timeline.series import Series
from memscope.analysis.timeline.serving_rows import ServingRows
from memscope.analysis.timeline.step_fold import Geometry, StepFold, StepSettings, add_geometries
from memscope.analysis.timeline.step_numbers import (
    StepCounts,
    first_own_number,
    step_kind,
)
from memscope.analysis.timeline.steps import MAX_STEPS, Steps
from memscope.analysis.timeline.sums import SumFold, read_sums
from memscope.analysis.timeline.window import Window
from memscope.events import KINDS, Kind
from memscope.facts import Fact, StepSource

if TYPE_CHECKING:
    from memscope.format.header import Header
    from memscope.reader.scanner import Batch

__all__ = [
    "DEFAULT_WARMUP_STEPS",
    "Geometry",
    "Mark",
    "OutOfMemory",
    "Phase",
    "Series",
    "Steps",
    "Timeline",
]

DEFAULT_WARMUP_STEPS = 1

# Facts that change what the rows after them mean.
_TURNING = (Fact.MODEL, Fact.WARMUP_STEPS, Fact.STEP_SOURCE)


class Timeline:
    """All results of the batches added so far. Memory grows only by one small row per step."""

    def __init__(self, header: Header, *, warmup_steps: int | None = None) -> None:
        self.header = header
        self.batches = 0
        self.events = 0
        self.last_ns = 0
        self._given_warmup = warmup_steps
        self._kind_counts = np.zeros(256, dtype=np.int64)
        self._rare = RareRows()
        self._steps = StepFold()
        self._sums = SumFold()
        self._readings = Readings()
        self._oom_readings = OomReadings()
        self._reading_fold = ReadingFold()
        self.serving = ServingRows()
        self._counters = CounterFold()
        self._flushes = FlushFold()
        self._layers = LayerFold()
        self.driver = DriverBytes()
        self.pool_driver = DriverBytes("weight_pool")

    def add(self, batch: Batch, *, batches: int = 1) -> None:
        """Fold one batch, or ``batches`` batches that were joined into one."""
        self.batches += batches
        self.events += batch.rows
        if not batch.rows:
            return
        self.last_ns = max(self.last_ns, int(batch["t_ns"].max()))
        self._kind_counts += np.bincount(batch["kind"].view(np.uint8), minlength=256)
        samples = decode_samples(batch)
        start = 0
        for row in batch.where(Kind.FACT).tolist():
            if batch.name(row) in _TURNING:
                self._fold_steps(batch, samples, start, row)
                start = row
            self._rare.add_fact(batch, row, steps=self._steps.steps_ended)
            if batch.name(row) == Fact.SEGMENT:
                self._restart(read_held(batch.data(row)))
        self._fold_steps(batch, samples, start, batch.rows)
        self._oom_readings.add(batch, samples, self._readings, MAX_KEPT - len(self._rare.ooms))
        self._rare.add(batch)
        self._readings.add(samples)
        sums = read_sums(batch)
        self._sums.add(batch, sums, warmup_steps=self.warmup_steps, head=self.layers)
        self._counters.add(batch, samples, sums)
        self.serving.add(batch, samples)
        self._flushes.add(batch)
        self._layers.add(samples, is_thinned=batch.is_thinned)
        self.driver.add(batch, sums)
        self.pool_driver.add(batch, sums)

    def _restart(self, held: Held) -> None:
        """Start again: the events before this segment have been deleted."""
        for fold in (self.driver, self.pool_driver, self._counters):
            fold.restart(held)

    def _fold_steps(self, batch: Batch, samples: Samples, start: int, stop: int) -> None:
        """Fold rows whose meaning depends on the facts before them."""
        samples = samples.between(start, stop)
        self._steps.fold(batch, samples, start, stop, self._settings)
        self._reading_fold.fold(batch, samples, start, stop, self.warmup_steps)

    @property
    def facts(self) -> dict[str, Any]:
        """Key → last value of the fact."""
        return self._rare.facts

    def fact(self, key: str, field: str) -> Any:
        """One field of a fact that is a dict; None if there is none."""
        return field_of(self.facts, key, field)

    def count_fact(self, key: str, field: str) -> int | None:
        """One field of a fact if it is a whole number of 0 or more, else None."""
        return count_of(self.facts, key, field)

    @property
    def other_steps(self) -> int:
        """Number of steps before the program's own: seconds before its first step."""
        return self._rare.step_source.other_steps

    @property
    def first_own_step(self) -> int:
        """Recorded number of step 0."""
        if not self.other_steps:
            return 0
        return first_own_number(self._recorded_steps.step, self.other_steps)

    @property
    def step_counts(self) -> StepCounts:
        """What counts as a step, and how many have ended."""
        said, ended = self._rare.step_source, max(len(self.steps) - self.other_steps, 0)
        return StepCounts(
            kind=step_kind(said.source, self.facts),
            ended=ended,
            warmup=min(self.warmup_steps - self.other_steps, ended),
            ignored=self.other_steps,
        )

    @property
    def are_steps_seconds(self) -> bool:
        """Whether the program shows no steps, so each second counts as one."""
        return bool(self.facts.get(Fact.STEP_SOURCE) == StepSource.SECOND)

    @property
    def own_steps(self) -> Steps:
        """The program's steps, from step 0 on; empty if each second is a step."""
        steps = self.steps
        return steps.after(len(steps) if self.are_steps_seconds else self.other_steps)

    @property
    def warmup_steps(self) -> int:
        """Number of steps left out of metrics, including ``other_steps``.

        The warm-up of the program's own steps is the number asked for, else the number that
        the program gives, else 1.
        """
        count = self._given_warmup
        if count is None:
            count = as_count(self.facts.get(Fact.WARMUP_STEPS))
        return self.other_steps + (DEFAULT_WARMUP_STEPS if count is None else count)

    @property
    def layers(self) -> int | None:
        """Number of layers without lm_head; None if the program did not say."""
        return read_model(self.facts).layers

    @property
    def steps(self) -> Steps:
        """Steps that have ended, as the program counts them: earlier steps have numbers below 0.

        If --keep-last has deleted the program's first steps, the recorded numbers stay.
        """
        recorded = self._recorded_steps
        first = first_own_number(recorded.step, self.other_steps)
        return replace(recorded, step=recorded.step - first) if first else recorded

    @property
    def _recorded_steps(self) -> Steps:
        return self._sums.added_to(self._steps.steps)

    @property
    def measured_steps(self) -> Steps:
        """Steps after warm-up."""
        return self.steps.after(self.warmup_steps)

    @property
    def steps_taken_ns(self) -> int:
        """When the program's own steps began."""
        return self._rare.step_source.since_ns

    @property
    def series(self) -> dict[str, Series]:
        """Name → its readings."""
        return self._readings.series()

    def readings_of(self, name: str) -> dict[int, DeviceReadings]:
        """Device (−1 for none) → its readings of this name."""
        return self._reading_fold.of(name)

    def latest(self, reading_name: str, device: int = -1) -> Reading | None:
        """The last reading of this name on one device; None if there is none."""
        return self._readings.latest(reading_name, device)

    def device_series(self, reading_name: str) -> dict[int, Series]:
        """Device → its readings of ``nvml.process_bytes`` or ``torch.reserved_bytes``."""
        return self._readings.device_series(reading_name)

    @property
    def devices(self) -> tuple[int, ...]:
        """Indices of the GPUs that have readings."""
        return self._readings.devices

    @property
    def counters(self) -> dict[int, DeviceCounters]:
        """GPU → its counters of torch."""
        return self._counters.devices

    @property
    def layer_memory(self) -> tuple[LayerMemory, ...]:
        """Memory that each layer of a watched model took from torch's allocator."""
        resets = self.fact(Fact.WATCH, "layer_peaks") == "reset at each boundary"
        return self._layers.layers(self.fact(Fact.WATCH, "layers"), are_peaks_reset=resets)

    def flushes_after(self, t_ns: int) -> Flushes:
        """Calls of empty_cache after this time."""
        return self._flushes.after(t_ns)

    @property
    def geometries(self) -> tuple[Geometry, ...]:
        """Hits, misses, returns and overflows of the weight pool after warm-up, by geometry."""
        return add_geometries(self._steps.geometries, self._sums.pool_counts())

    @property
    def is_window_known(self) -> bool:
        """Whether the location of every layer is known: no event about it was summed or deleted."""
        is_summed = any(self.dropped.get(kind) for kind in ("upload", "evict", "layer"))
        return not is_summed and Fact.SEGMENT not in self.facts

    @property
    def are_uploads_known(self) -> bool:
        """Whether the uploaded layers of every step are known."""
        return not self._sums.has_unknown_layers

    @property
    def window(self) -> Window:
        """Location of the layers when the last step ended, or now if no step has ended yet."""
        return self._steps.window_seen()

    @property
    def ooms(self) -> tuple[OutOfMemory, ...]:
        """Out-of-memory errors; only the first few thousand are kept."""
        first = self.first_own_step
        return tuple(_renumber(oom, first) for oom in self._rare.ooms)

    @property
    def readings_at_oom(self) -> ReadingsBefore | None:
        """The last readings before the last out-of-memory error of the program or engine."""
        return self._oom_readings.last

    @property
    def oom_counts(self) -> dict[str, int]:
        """Number of out-of-memory errors by scope, "engine" and "request"."""
        return dict(self._rare.oom_count)

    @property
    def map_rows(self) -> MapRows:
        """Rows of the allocator's last map. ``recorded_map`` turns them into a map."""
        return self._rare.map

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Moments that the user marked."""
        first = self.first_own_step
        return tuple(_renumber(mark, first) for mark in self._rare.marks)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Phases that the user named."""
        return tuple(self._rare.phases)

    @property
    def counts(self) -> dict[str, int]:
        """Kind of event → how many, including events that are kept as sums only."""
        return {
            name: int(count) + self.dropped.get(name, 0)
            for name, count in zip(KINDS, self._kind_counts, strict=False)
            if count or self.dropped.get(name)
        }

    @property
    def unknown_kinds(self) -> dict[str, int]:
        """Kind that this version does not know → number of events."""
        names = self.header.kinds
        return {
            names[code] if code < len(names) else f"kind {code}": int(self._kind_counts[code])
            for code in np.flatnonzero(self._kind_counts).tolist()
            if code >= len(KINDS)
        }

    @property
    def dropped(self) -> dict[str, int]:
        """Kind of event → number of events that the recorder kept as sums only."""
        return dict(self._rare.dropped)

    @property
    def old_sums(self) -> dict[str, int]:
        """The part of ``dropped`` from old segments; the rest came too fast to be written."""
        return dict(self._sums.old)

    @property
    def dropped_rows(self) -> int:
        """Number of events that came too fast to be written."""
        return sum(self._rare.dropped.values()) - sum(self._sums.old.values())

    @property
    def ignored_rows(self) -> int:
        """Number of events that no metric counts: bad layer numbers, or beyond a memory bound."""
        beyond = max(self._steps.steps_ended - MAX_STEPS, 0)
        return self._steps.ignored_rows + self._readings.ignored_rows + self._rare.unkept + beyond

    @property
    def _settings(self) -> StepSettings:
        return StepSettings(self.warmup_steps, self.layers)


_Numbered = TypeVar("_Numbered", OutOfMemory, Mark)


def _renumber(row: _Numbered, first: int) -> _Numbered:
    return replace(row, step=max(row.step - first, -1)) if first else row
