"""Where layers were at the moment of the metrics, and what is in flight then."""

from __future__ import annotations

from memscope.analysis.summary.residency_map import LayerStates, find_layer_states
from memscope.events import Kind
from tests.memscope.analysis.build import Event, event, fact, fold

MODEL = fact("model", {"layers": 3, "entries_per_layer": 7})
SLAB = 100


def upload(t_ns: int, step: int, layer: int) -> Event:
    return event(Kind.UPLOAD, t_ns, step=step, layer=layer, bytes=SLAB, value=7)


def ran(t_ns: int, step: int, layer: int) -> Event:
    return event(Kind.LAYER, t_ns, step=step, layer=layer)


def in_flight(t_ns: int, step: int, size: int) -> Event:
    return event(
        Kind.SAMPLE, t_ns, step=step, name="residency.in_flight_bytes", bytes=size, value=None
    )


FIRST_STEP = [
    MODEL,
    *(move for layer in range(3) for move in (upload(layer, 0, layer), ran(layer, 0, layer))),
    event(Kind.EVICT, 4, step=0, layer=0, bytes=SLAB, value=7),
    in_flight(9, 0, SLAB),
    event(Kind.STEP, 10, step=0),
]


def test_states_are_those_of_the_last_steps_end_whatever_comes_after() -> None:
    shutdown = [event(Kind.EVICT, 20, layer=layer, bytes=SLAB, value=7) for layer in (1, 2)]
    states = find_layer_states(fold([*FIRST_STEP, *shutdown])).states
    assert states == ("evicted", "resident", "resident")


def test_an_upload_begun_before_the_steps_end_and_written_after_it_is_in_flight() -> None:
    after = [upload(8, 1, 0), ran(12, 1, 0)]
    assert find_layer_states(fold([*FIRST_STEP, *after])) == LayerStates(
        ("in flight", "resident", "resident"), step=0
    )


def test_an_upload_begun_after_the_steps_end_was_not_in_flight() -> None:
    found = find_layer_states(fold([*FIRST_STEP[:-2], FIRST_STEP[-1], upload(11, 1, 0)]))
    assert found == LayerStates(("evicted", "resident", "resident"), step=0)


def test_bytes_in_flight_are_said_where_their_row_is_not_written() -> None:
    assert find_layer_states(fold(FIRST_STEP)) == LayerStates(
        ("evicted", "resident", "resident"), step=0, unnamed_bytes=SLAB
    )


def test_a_layer_that_ran_before_its_upload_was_written_is_not_called_evicted() -> None:
    assert find_layer_states(fold([MODEL, ran(1, 0, 0)])).states == ("unused",) * 3
