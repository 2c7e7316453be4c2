"""Which layers' weights are on the device, from uploads, runs and evictions of layers.

An upload is in flight until its layer runs, and ready for compute from then on. The same fold
serves a whole run and a step that has not ended.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

UPLOADED, RAN, EVICTED = 0, 1, 2
MAX_LAYERS = 65_535


@dataclass(frozen=True, slots=True)
class Moves:
    """Uploads, runs and evictions of layers, ordered by ``slot`` (the step) and time."""

    slot: Numbers
    layer: Numbers
    what: Numbers
    entries: Numbers
    bytes: Numbers


@dataclass(frozen=True, slots=True)
class Occupancy:
    """One value per slot: counts in it, peaks within it, and levels at its end."""

    uploads: Numbers
    evictions: Numbers
    entries_at_end: Numbers
    peak_entries: Numbers
    peak_layers: Numbers
    peak_held_layers: Numbers
    resident_bytes: Numbers
    peak_resident_bytes: Numbers
    in_flight_bytes: Numbers


class Window:
    """Entries and bytes of each layer that are ready or in flight, after the moves so far."""

    def __init__(self) -> None:
        self._ready = _Level()
        self._flight = _Level()
        self._is_uploading = np.zeros(0, dtype=bool)
        self._is_seen = np.zeros(0, dtype=bool)

    def copy(self) -> Window:
        """A copy that can be folded further without changing this window."""
        other = Window()
        other._ready, other._flight = self._ready.copy(), self._flight.copy()
        other._is_uploading = self._is_uploading.copy()
        other._is_seen = self._is_seen.copy()
        return other

    def states(self, layers: int) -> tuple[str, ...]:
        """ "resident", "in flight", "evicted" or "unused" for each layer."""
        self._grow(layers)
        is_ready, is_flying = self._ready.entries > 0, self._flight.entries > 0
        names = np.where(self._is_seen, "evicted", "unused").astype("<U9")
        names[is_flying] = "in flight"
        names[is_ready] = "resident"
        return tuple(names[:layers].tolist())

    @property
    def flight_bytes(self) -> int:
        """Bytes in flight, including lm_head."""
        return int(self._flight.bytes.sum())

    @property
    def layers_seen(self) -> int:
        """One more than the highest layer that was uploaded or evicted."""
        seen = np.flatnonzero(self._is_seen)
        return int(seen[-1]) + 1 if len(seen) else 0

    def fold(self, moves: Moves, slots: int, *, head: int | None) -> Occupancy:
        """Follow ``moves`` through ``slots`` slots. ``head``: lm_head, not counted as a layer."""
        before = self._totals(head)
        if not len(moves.layer):
            return _idle_occupancy(before, slots)
        self._grow(int(moves.layer.max()) + 1)
        order = np.argsort(moves.layer.astype(np.uint16), kind="stable")
        changes = self._changes(moves, order)
        is_layer = moves.layer != (-1 if head is None else head)
        levels = {
            "entries": changes.ready_entries,
            "bytes": changes.ready_bytes,
            "layers": changes.ready_layers * is_layer,
            "held": changes.held_layers * is_layer,
            "flight": changes.flight_bytes,
        }
        end, peak = {}, {}
        for name, change in levels.items():
            level = np.cumsum(change) + before[name]
            end[name], peak[name] = _ends_and_peaks(level, moves.slot, slots, before[name])
        return Occupancy(
            uploads=_count(moves.slot, changes.is_new_upload & is_layer, slots),
            evictions=_count(moves.slot, changes.is_emptied & is_layer, slots),
            entries_at_end=end["entries"],
            peak_entries=peak["entries"],
            peak_layers=peak["layers"],
            peak_held_layers=peak["held"],
            resident_bytes=end["bytes"],
            peak_resident_bytes=peak["bytes"],
            in_flight_bytes=end["flight"],
        )

    def _changes(self, moves: Moves, order: Numbers) -> _Changes:
        """The changes by each move, computed layer by layer and returned in order of time."""
        layer, what = moves.layer[order], moves.what[order]
        is_upload, is_run = what == UPLOADED, what == RAN
        is_first = np.concatenate(([True], layer[1:] != layer[:-1]))
        groups = _Groups(is_first)
        flights = _Groups(is_first | np.concatenate(([False], is_run[:-1])))
        is_carried = flights.start_of == groups.start_of
        is_uploading = self._uploading_at(layer, what, groups)
        sign = is_upload.astype(np.int64) - ((what == EVICTED) & is_uploading)
        is_evicted = (what == EVICTED) & ~is_uploading
        columns = []
        for given, flight, ready in (
            (moves.entries[order], self._flight.entries, self._ready.entries),
            (moves.bytes[order], self._flight.bytes, self._ready.bytes),
        ):
            flying = flights.running(sign * given, np.where(is_carried, flight[layer], 0))
            after = np.where(is_run, 0, flying)
            level = groups.running(np.where(is_run, flying, 0) - is_evicted * given, ready[layer])
            columns.append(
                (
                    groups.shifted(level, ready[layer]),
                    level,
                    groups.shifted(after, flight[layer]),
                    after,
                )
            )
            flight[layer[groups.last]] = after[groups.last]
            ready[layer[groups.last]] = level[groups.last]
        self._is_seen[layer[what != RAN]] = True
        entries, bytes = columns
        had = (entries[0] > 0) | (entries[2] > 0)
        has = (entries[1] > 0) | (entries[3] > 0)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return _Changes(
            ready_entries=(entries[1] - entries[0])[back],
            ready_bytes=(bytes[1] - bytes[0])[back],
            flight_bytes=(bytes[3] - bytes[2])[back],
            ready_layers=((entries[1] > 0).astype(np.int64) - (entries[0] > 0))[back],
            held_layers=(has.astype(np.int64) - had)[back],
            is_new_upload=(is_upload & (entries[2] == 0))[back],
            is_emptied=((what == EVICTED) & had & ~has)[back],
        )

    def _uploading_at(
        self, layer: Numbers, what: Numbers, groups: _Groups
    ) -> npt.NDArray[np.bool_]:
        """Whether a layer's last upload or run, up to each row, was an upload."""
        latest = np.maximum.accumulate(np.where(what != EVICTED, np.arange(len(what)), -1))
        is_known = latest >= groups.start_of
        result = np.where(is_known, what[latest] == UPLOADED, self._is_uploading[layer])
        self._is_uploading[layer[groups.last]] = result[groups.last]
        return result

    def _totals(self, head: int | None) -> dict[str, int]:
        is_ready = self._ready.entries > 0
        is_held = is_ready | (self._flight.entries > 0)
        if head is not None and head < len(is_ready):
            is_ready[head] = is_held[head] = False
        return {
            "entries": int(self._ready.entries.sum()),
            "bytes": int(self._ready.bytes.sum()),
            "layers": int(is_ready.sum()),
            "held": int(is_held.sum()),
            "flight": int(self._flight.bytes.sum()),
        }

    def _grow(self, layers: int) -> None:
        missing = layers - len(self._is_seen)
        if missing > 0:
            self._ready.grow(missing)
            self._flight.grow(missing)
            self._is_uploading = np.pad(self._is_uploading, (0, missing))
            self._is_seen = np.pad(self._is_seen, (0, missing))


class _Level:
    """Entries and bytes of each layer."""

    def __init__(self) -> None:
        self.entries: Numbers = np.zeros(0, dtype=np.int64)
        self.bytes: Numbers = np.zeros(0, dtype=np.int64)

    def copy(self) -> _Level:
        other = _Level()
        other.entries, other.bytes = self.entries.copy(), self.bytes.copy()
        return other

    def grow(self, missing: int) -> None:
        self.entries = np.pad(self.entries, (0, missing))
        self.bytes = np.pad(self.bytes, (0, missing))


@dataclass(frozen=True, slots=True)
class _Changes:
    ready_entries: Numbers
    ready_bytes: Numbers
    flight_bytes: Numbers
    ready_layers: Numbers
    held_layers: Numbers
    is_new_upload: npt.NDArray[np.bool_]
    is_emptied: npt.NDArray[np.bool_]


class _Groups:
    """Runs of consecutive rows. Each begins at a row marked as first."""

    def __init__(self, is_first: npt.NDArray[np.bool_]) -> None:
        self.first = np.flatnonzero(is_first)
        self.last = np.append(self.first[1:] - 1, len(is_first) - 1)
        self.start_of = np.repeat(self.first, self.last - self.first + 1)

    def running(self, changes: Numbers, carried: Numbers) -> Numbers:
        """Level after each row. Evictions never take it below zero."""
        sums = np.cumsum(changes)
        level: Numbers = sums - (sums - changes)[self.start_of] + carried
        if level.min() < 0:  # evictions whose uploads were lost
            for first, last in zip(self.first, self.last, strict=True):
                part = level[first : last + 1]
                part -= np.minimum(np.minimum.accumulate(part), 0)
        return level

    def shifted(self, level: Numbers, carried: Numbers) -> Numbers:
        """Level before each row."""
        before = np.concatenate(([0], level[:-1]))
        before[self.first] = carried[self.first]
        return before


def _ends_and_peaks(
    level: Numbers, slot: Numbers, slots: int, before: int
) -> tuple[Numbers, Numbers]:
    """Level at the end of each slot, and highest level within it, including its start."""
    after = np.searchsorted(slot, np.arange(slots), side="right")
    end = np.where(after > 0, level[after - 1], before)
    peak = np.concatenate(([before], end[:-1]))
    starts = np.concatenate(([0], after[:-1]))
    has_rows = after > starts
    if has_rows.any():
        highest = np.maximum.reduceat(level[: after[-1]], starts[has_rows])
        peak[has_rows] = np.maximum(peak[has_rows], highest)
    return end, peak


def _count(slot: Numbers, is_counted: npt.NDArray[np.bool_], slots: int) -> Numbers:
    return np.bincount(slot[is_counted], minlength=slots)


def _idle_occupancy(level: dict[str, int], slots: int) -> Occupancy:
    nothing = np.zeros(slots, dtype=np.int64)
    return Occupancy(
        uploads=nothing,
        evictions=nothing,
        entries_at_end=nothing + level["entries"],
        peak_entries=nothing + level["entries"],
        peak_layers=nothing + level["layers"],
        peak_held_layers=nothing + level["held"],
        resident_bytes=nothing + level["bytes"],
        peak_resident_bytes=nothing + level["bytes"],
        in_flight_bytes=nothing + level["flight"],
    )
