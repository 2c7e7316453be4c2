"""The window against a walk through its events one by one."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memscope.analysis.timeline.window import EVICTED, RAN, UPLOADED, Moves, Occupancy, Window

HEAD = 3
Move = tuple[int, int, int, int]  # slot, layer, what, entries; bytes are ten times the entries

moves = st.tuples(
    st.integers(0, 3), st.integers(0, HEAD), st.sampled_from((UPLOADED, RAN, EVICTED)),
    st.integers(0, 7),
)  # fmt: skip


def follow(window: Window, rows: list[Move], slots: int) -> Occupancy:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return window.fold(
        Moves(columns[0], columns[1], columns[2], columns[3], columns[3] * 10), slots, head=HEAD
    )


def walk(rows: list[Move], slots: int) -> list[tuple[int, int, int, int, int]]:
    """Per slot: entries at its end, peak entries, peak layers, bytes in flight, layers uploaded."""
    ready: dict[int, int] = defaultdict(int)
    flight: dict[int, int] = defaultdict(int)
    is_uploading: dict[int, bool] = defaultdict(bool)
    result = []
    for slot in range(slots):
        levels = [(sum(ready.values()), count(ready))]
        uploads = 0
        for _, layer, what, entries in (row for row in rows if row[0] == slot):
            if what == UPLOADED:
                uploads += flight[layer] == 0 and layer != HEAD
                flight[layer] += entries
            elif what == RAN:
                ready[layer] += flight[layer]
                flight[layer] = 0
            else:
                held = flight if is_uploading[layer] else ready
                held[layer] = max(held[layer] - entries, 0)
            if what != EVICTED:
                is_uploading[layer] = what == UPLOADED
            levels.append((sum(ready.values()), count(ready)))
        peaks = [max(level) for level in zip(*levels, strict=True)]
        result.append((levels[-1][0], *peaks, 10 * sum(flight.values()), uploads))
    return result


def count(ready: dict[int, int]) -> int:
    return sum(entries > 0 for layer, entries in ready.items() if layer != HEAD)


def columns_of(seen: Occupancy) -> list[tuple[int, ...]]:
    columns = (
        seen.entries_at_end, seen.peak_entries, seen.peak_layers, seen.in_flight_bytes,
        seen.uploads,
    )  # fmt: skip
    return [tuple(map(int, row)) for row in zip(*columns, strict=True)]


@settings(max_examples=300, deadline=None)
@given(st.lists(moves, max_size=30), st.integers(0, 30))
def test_the_fold_agrees_with_a_walk(rows: list[Move], split: int) -> None:
    rows.sort(key=lambda row: row[0])
    assert columns_of(follow(Window(), rows, 4)) == walk(rows, 4)


@settings(max_examples=200, deadline=None)
@given(st.lists(moves, max_size=30), st.integers(0, 4))
def test_a_fold_goes_on_where_the_last_one_stopped(rows: list[Move], slots: int) -> None:
    rows.sort(key=lambda row: row[0])
    window, whole = Window(), Window()
    first = follow(window, [row for row in rows if row[0] < slots], slots)
    rest = [(slot - slots, *row) for slot, *row in rows if slot >= slots]
    second = follow(window, rest, 4 - slots)  # type: ignore[arg-type]
    assert columns_of(first) + columns_of(second) == columns_of(follow(whole, rows, 4))
    assert window.states(4) == whole.states(4)


def test_an_upload_is_ready_once_its_layer_runs() -> None:
    window = Window()
    follow(window, [(0, 0, UPLOADED, 7), (0, 1, UPLOADED, 7), (0, 1, RAN, 0)], 1)
    assert window.states(3) == ("in flight", "resident", "unused")
    follow(window, [(0, 1, EVICTED, 7)], 1)
    assert window.states(2) == ("in flight", "evicted")


def test_an_eviction_whose_upload_was_lost_takes_nothing_below_zero() -> None:
    seen = follow(Window(), [(0, 0, EVICTED, 7), (1, 1, UPLOADED, 7), (1, 1, RAN, 0)], 2)
    assert seen.entries_at_end.tolist() == [0, 7]


def test_layers_of_a_copy_move_alone() -> None:
    window = Window()
    follow(window.copy(), [(0, 0, UPLOADED, 7)], 1)
    assert window.states(1) == ("unused",)


@pytest.mark.parametrize("slots", [0, 1, 3])
def test_no_move_leaves_levels_as_they_were(slots: int) -> None:
    window = Window()
    follow(window, [(0, 0, UPLOADED, 7), (0, 0, RAN, 0)], 1)
    assert follow(window, [], slots).peak_entries.tolist() == [7] * slots
