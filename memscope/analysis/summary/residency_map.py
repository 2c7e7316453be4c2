"""Where each layer's weights are: in which steps they were uploaded, and at the last step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from memscope.analysis.timeline.facts import read_model
from memscope.analysis.timeline.read import batches_at
from memscope.analysis.timeline.sums import count_layers, read_sums
from memscope.analysis.timeline.timeline import Timeline
from memscope.events import Kind

if TYPE_CHECKING:
    from memscope.reader.recording import Recording
    from memscope.reader.scanner import Batch

MAX_COLUMNS = 600
MAX_ROWS = 1024


@dataclass(frozen=True, slots=True)
class ResidencyMap:
    """Share of a column's steps in which a layer had to be uploaded, 0 to 1.

    ``shares`` is float64 (layers, columns), NaN in a column without a step; ``first_step`` and
    ``last_step`` are int64 (columns,). lm_head is not included. Each column stands for ``width``
    steps, so there are at most ``MAX_COLUMNS``.
    """

    shares: npt.NDArray[np.float64]
    first_step: npt.NDArray[np.int64]
    last_step: npt.NDArray[np.int64]
    width: int

    def __len__(self) -> int:
        """Number of columns."""
        return len(self.first_step)


class ResidencyMapFold:
    """Counts uploaded entries by layer and column. Columns are merged as more steps come."""

    def __init__(self) -> None:
        self._entries = np.zeros((0, MAX_COLUMNS))
        self._steps = np.zeros(MAX_COLUMNS)
        self._summed = np.zeros((0, MAX_COLUMNS))  # layers uploaded, by sums
        self._first: int | None = None
        self._width = 1

    def add(self, batch: Batch) -> None:
        """Add the uploads and steps of one batch."""
        kind, step, layer = batch["kind"], batch["step"], batch["layer"]
        ends = np.flatnonzero((kind == Kind.STEP) & (step >= 0))
        is_upload = (kind == Kind.UPLOAD) & (step >= 0) & (layer >= 0) & (layer < MAX_ROWS)
        rows = np.flatnonzero(is_upload)
        self._add_sums(batch)
        both = np.concatenate((rows, ends))
        if not len(both):
            return
        if self._first is None:
            self._first = int(step[both.min()])
        rows, ends = rows[step[rows] >= self._first], ends[step[ends] >= self._first]
        self._make_room(max(step[rows].max(initial=0), step[ends].max(initial=0)))
        np.add.at(self._steps, self._columns(step[ends]), 1)
        if len(rows):
            entries = np.nan_to_num(batch["value"][rows], nan=1.0, posinf=1.0, neginf=1.0)
            missing = int(layer[rows].max()) + 1 - len(self._entries)
            self._entries = np.pad(self._entries, ((0, max(missing, 0)), (0, 0)))
            where = (layer[rows], self._columns(step[rows]))
            np.add.at(self._entries, where, np.clip(entries, 0, 1 << 20))

    def _add_sums(self, batch: Batch) -> None:
        """Add uploads of which only sums per step are kept."""
        sums = read_sums(batch)
        is_upload = (sums.kind == Kind.UPLOAD) & (batch["step"][sums.rows] >= 0)
        for which in np.flatnonzero(is_upload).tolist():
            step = int(batch["step"][sums.rows[which]])
            if self._first is None:
                self._first = step
            layers = count_layers(sums.layers[which] or [])
            layers = layers[layers < MAX_ROWS]
            if step < self._first or not len(layers):
                continue
            self._make_room(step)
            missing = int(layers.max()) + 1 - len(self._summed)
            self._summed = np.pad(self._summed, ((0, max(missing, 0)), (0, 0)))
            np.add.at(self._summed[:, (step - self._first) // self._width], layers, 1)

    def result(self, timeline: Timeline) -> ResidencyMap:
        """The map up to the last step that ended. ``timeline`` gives the number of layers."""
        used = np.flatnonzero(self._steps)
        columns = int(used[-1]) + 1 if len(used) else 0
        layers = min(timeline.layers or len(self._entries), MAX_ROWS)
        per_layer = read_model(timeline.facts).entries_per_layer or 1
        entries = np.zeros((layers, columns))
        known = self._entries[:layers, :columns]
        entries[: len(known)] = known
        summed = self._summed[:layers, :columns]
        entries[: len(summed)] += summed * per_layer
        steps = self._steps[:columns]
        shares = np.full_like(entries, np.nan)
        np.divide(entries, steps * per_layer, out=shares, where=steps > 0)
        begin = (self._first or 0) - timeline.first_own_step
        first = begin + np.arange(columns) * self._width
        return ResidencyMap(np.minimum(shares, 1.0), first, first + self._width - 1, self._width)

    def _columns(self, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return (steps - (self._first or 0)) // self._width

    def _make_room(self, step: int) -> None:
        """Merge columns in pairs until there is one for ``step``."""
        while (int(step) - (self._first or 0)) // self._width >= MAX_COLUMNS:
            self._width *= 2
            self._steps = _merge_pairs(self._steps)
            self._entries = _merge_pairs(self._entries)
            self._summed = _merge_pairs(self._summed)


def read_residency_map(
    recording: Recording, timeline: Timeline, *, at: str = "end"
) -> ResidencyMap:
    """The map of ``recording`` up to ``at``, the moment that ``timeline`` was read at.

    Raises MemscopeError if ``at`` is not a moment of the recording.
    """
    fold = ResidencyMapFold()
    for batch in batches_at(recording, at):
        fold.add(batch)
    return fold.result(timeline)


def _merge_pairs(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Add columns in pairs; the right half is empty. (…, columns)"""
    pairs = values.reshape(*values.shape[:-1], MAX_COLUMNS // 2, 2).sum(axis=-1)
    return np.concatenate((pairs, np.zeros_like(pairs)), axis=-1)


@dataclass(frozen=True, slots=True)
class LayerStates:
    """For each layer "resident", "in flight", "evicted" or "unused"; without lm_head.

    The states are those at the end of ``step``, the last one. ``step`` is None before any step has
    ended. ``unnamed_bytes`` are in flight to a layer that is not known yet: an upload is recorded
    when it is over.
    """

    states: tuple[str, ...] = ()
    step: int | None = None
    unnamed_bytes: int = 0


def find_layer_states(timeline: Timeline) -> LayerStates:
    """The states at the last step. Empty if upload or eviction events are missing."""
    if not timeline.is_window_known:
        return LayerStates()
    window, steps = timeline.window, timeline.steps
    states = window.states(timeline.layers or window.layers_seen)
    if not len(steps):
        return LayerStates(states)
    read = int(steps.in_flight_bytes[-1])
    return LayerStates(states, int(steps.step[-1]), max(read - window.flight_bytes, 0))
