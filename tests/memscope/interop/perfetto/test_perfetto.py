"""A recording as a trace that Perfetto opens."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memscope.events import KINDS, Kind
from memscope.interop.perfetto import trace as perfetto_trace
from tests.memscope.analysis.build import HEADER, event, fact, make_batch, state
from tests.memscope.analysis.sweeps import run_sweeps
from tests.memscope.interop.perfetto.perfetto_traces import Track, fields, read_tracks, write_trace

HOSTILE = "\x00\u202e</script>\n\x1b[31mé𝄞" + "x" * 500
KIND_NUMBERS = st.one_of(st.integers(0, len(KINDS) - 1), st.integers(-128, 127))
TIMES = st.one_of(st.integers(0, 60), st.integers(-(1 << 63), (1 << 63) - 1))
SIZES = st.one_of(st.none(), st.integers(0, 30), st.integers(-(1 << 63), (1 << 63) - 1))
NAMES = st.one_of(st.none(), st.sampled_from(["a", "b_ratio", HOSTILE]))


@st.composite
def rows_of_any_kind(draw: st.DrawFn) -> list[dict[str, Any]]:
    row = st.fixed_dictionaries(
        {
            "kind": KIND_NUMBERS,
            "t_ns": TIMES,
            "step": st.integers(-1, 3),
            "layer": st.integers(-1, 3),
            "name": NAMES,
            "bytes": SIZES,
            "duration_ns": SIZES,
            "value": st.one_of(st.none(), st.floats()),
            "data": st.one_of(st.none(), st.just({"reason": HOSTILE})),
            "device": st.integers(-1, 1),
        }
    )
    return draw(st.lists(row, min_size=1, max_size=60))


def tracks_of(*rows: dict[str, Any]) -> dict[str, Track]:
    return {track.name: track for track in read_tracks(write_trace(rows)[0])}


@settings(deadline=None)
@given(rows_of_any_kind(), st.integers(1, 60))
def test_no_slice_of_a_track_overlaps_another_whatever_was_recorded(
    rows: list[dict[str, Any]], split: int
) -> None:
    data, writer = write_trace(rows, split=split)
    tracks = read_tracks(data)  # asserts how slices lie
    held = sum(len(track.slices) + len(track.instants) + len(track.counts) for track in tracks)
    assert held == writer.written
    assert writer.written + sum(writer.left_out.values()) == len(rows)


def test_every_packet_follows_perfettos_schema() -> None:
    schema = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    unknown_fields = pytest.importorskip("google.protobuf.unknown_fields")
    rows = [
        *run_sweeps("past", 6, 2),
        event(Kind.PHASE, 900, name="load", duration_ns=100, value=0.5, data={"a": 1}),
        event(Kind.SAMPLE, 950, name="torch.allocated_bytes", bytes=1 << 40, device=0),
        event(Kind.SAMPLE, 960, name="gpu.busy_ratio", value=0.25, device=0),
        event(100, 970, address=1 << 63, duration_ns=5),
    ]
    cut = replace(state("cut"), lost_bytes=3)
    data, writer = write_trace(rows, header=replace(HEADER, rank=1), state=cut)
    trace = schema.Trace.FromString(data)

    def check(message: Any) -> None:
        assert len(unknown_fields.UnknownFieldSet(message)) == 0
        for described, value in message.ListFields():
            if described.type == described.TYPE_MESSAGE:
                for each in [value] if hasattr(value, "ListFields") else value:
                    check(each)

    check(trace)
    found = [packet.track_event for packet in trace.packet if packet.HasField("track_event")]
    types = [each.type for each in found]
    begun = types.count(schema.TrackEvent.TYPE_SLICE_BEGIN)
    assert begun == types.count(schema.TrackEvent.TYPE_SLICE_END) > 0
    assert len(found) == writer.written + begun + 1  # an end for each slice, and where it was cut
    described = [
        each.track_descriptor for each in trace.packet if each.HasField("track_descriptor")
    ]
    assert described[0].process.pid == HEADER.pid
    assert described[0].child_ordering == schema.TrackDescriptor.EXPLICIT
    by_name = {each.name: each for each in described}
    size = by_name["torch.allocated_bytes, device 0"].counter
    assert size.unit == schema.CounterDescriptor.UNIT_SIZE_BYTES
    assert by_name["gpu.busy_ratio, device 0"].counter.unit_name == "ratio"
    assert {each.parent_uuid for each in described[1:]} == {described[0].uuid}
    assert found[-1].name == "recording cut"
    assert {each.name for each in found} >= {"load", "step 0", "layer 1", "kind 100"}
    (load,) = (each for each in found if each.name == "load")
    notes = {note.name: note for note in load.debug_annotations}
    assert (notes["value"].double_value, notes["data"].string_value) == (0.5, '{"a": 1}')


def test_phases_and_steps_end_when_they_were_recorded() -> None:
    found = tracks_of(
        event(Kind.PHASE, 90, name="load", duration_ns=50),
        event(Kind.STEP, 100, step=7, duration_ns=10),
    )
    assert found["phases"].slices == [(40, 90, "load")]
    assert found["steps"].slices == [(90, 100, "step 7")]


def test_phases_within_a_phase_lie_on_a_track_of_their_own() -> None:
    rows = [
        event(Kind.PHASE, 30, name="inner", duration_ns=10),
        event(Kind.PHASE, 40, name="inner", duration_ns=10),
        event(Kind.PHASE, 50, name="outer", duration_ns=50),
    ]
    tracks = read_tracks(write_trace(rows)[0])
    assert [track.name for track in tracks] == ["phases", "phases"]
    assert [track.slices for track in tracks] == [
        [(20, 30, "inner"), (30, 40, "inner")],
        [(0, 50, "outer")],
    ]


def test_copies_begin_when_issued_or_after_the_one_before() -> None:
    found = tracks_of(
        event(Kind.UPLOAD, 10, layer=0, duration_ns=20),
        event(Kind.UPLOAD, 10, layer=1, duration_ns=20),
        event(Kind.UPLOAD, 99, layer=2, duration_ns=20),
        event(Kind.WAIT, 12, layer=0, duration_ns=18),
    )
    assert found["uploads"].slices == [
        (10, 30, "layer 0"),
        (30, 50, "layer 1"),
        (99, 119, "layer 2"),
    ]
    assert found["waits for uploads"].slices == [(12, 30, "layer 0")]


def test_readings_are_counters_with_units_of_their_device() -> None:
    found = tracks_of(
        event(Kind.SAMPLE, 1, name="torch.reserved_bytes", bytes=5, device=1),
        event(Kind.SAMPLE, 2, name="torch.reserved_bytes", bytes=1 << 50, device=1),
        event(Kind.SAMPLE, 3, name="torch.device_mallocs", value=2.0, device=1),
        event(Kind.SAMPLE, 4, name="gpu.busy_ratio", value=0.5),
    )
    reserved = found["torch.reserved_bytes, device 1"]
    assert (reserved.unit, reserved.counts) == (3, [(1, 5), (2, 1 << 50)])
    assert found["torch.device_mallocs, device 1"].unit == 2
    assert (found["gpu.busy_ratio"].unit, found["gpu.busy_ratio"].counts) == ("ratio", [(4, 0.5)])


def test_what_has_no_duration_is_a_moment_with_what_is_known_of_it() -> None:
    found = tracks_of(
        event(Kind.OOM, 5, bytes=9, data={"scope": "engine"}),
        event(Kind.MARK, 6, name="loaded"),
        event(Kind.EVICT, 7, layer=3, bytes=4),
        event(100, 8, step=2),
        fact("model", {"layers": 3}),
    )
    assert found["out of memory"].instants == [(5, "oom")]
    assert found["out of memory"].arguments == [{"bytes": 9, "data": b'{"scope": "engine"}'}]
    assert found["marks"].instants == [(6, "loaded")]
    assert found["evictions"].instants == [(7, "layer 3")]
    assert found["kind 100"].arguments == [{"step": 2}]
    assert found["facts"].instants == [(0, "model")]


def test_a_kind_of_a_newer_version_keeps_its_name() -> None:
    header = replace(HEADER, kinds=(*KINDS, "warp"))
    rows = [event(len(KINDS), 4, duration_ns=3)]
    (track,) = read_tracks(write_trace(rows, header=header)[0])
    assert (track.name, track.slices) == ("warp", [(1, 4, "warp")])


def test_a_reading_without_a_value_and_the_map_are_left_out_by_name() -> None:
    rows = [event(Kind.SAMPLE, 1, name="a"), event(Kind.BLOCK, 2), event(Kind.SEGMENT, 2)]
    _, writer = write_trace(rows)
    assert writer.written == 0
    assert writer.left_out == {"readings without a value": 1, "of the allocator's map": 2}


def test_where_lanes_run_out_a_slice_becomes_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto_trace, "MAX_LANES", 2)
    rows = [event(Kind.PHASE, 50, name=name, duration_ns=50) for name in "abc"]
    tracks = read_tracks(write_trace(rows)[0])
    assert [(len(each.slices), len(each.instants)) for each in tracks] == [(1, 1), (1, 0)]
    assert tracks[0].arguments[-1] == {"duration_ns": 50}


def test_readings_past_the_bound_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto_trace, "MAX_TRACKS", 3)
    rows = [event(Kind.SAMPLE, 1, name=f"m{n}", value=1.0) for n in range(5)]
    data, writer = write_trace(rows)
    assert len(read_tracks(data)) == writer.written == 3
    assert writer.left_out == {"of tracks past the first 3": 2}


@pytest.mark.parametrize("name", ["running", "cut", "damaged"])
def test_a_recording_without_its_end_says_so_at_its_last_moment(name: str) -> None:
    rows = [event(Kind.MARK, 77, name="last")]
    tracks = read_tracks(write_trace(rows, state=state(name))[0])
    assert tracks[-1].instants == [(77, f"recording {name}")]


def test_times_are_those_of_the_machine() -> None:
    header = replace(HEADER, started_monotonic_ns=1_000)
    (track,) = read_tracks(write_trace([event(Kind.MARK, 7)], header=header)[0])
    assert track.instants == [(1_007, "mark")]


@pytest.mark.parametrize(("host", "moment"), [("laptop", 701), ("other", 161)])
def test_processes_of_a_run_are_on_one_clock(host: str, moment: int) -> None:
    rows = [event(Kind.MARK, 1, name="a")]
    first = replace(HEADER, started_at_ns=1000, started_monotonic_ns=100)
    other = replace(first, pid=2, host=host, started_at_ns=1060, started_monotonic_ns=700)
    traces = [write_trace(rows, header=header, first=first)[0] for header in (first, other)]
    found = [track.instants for track in read_tracks(b"".join(traces))]
    assert found == [[(101, "a")], [(moment, "a")]]


def test_recordings_of_one_process_have_tracks_of_their_own() -> None:
    rows = [event(Kind.PHASE, 50, name="load", duration_ns=50)]
    later = replace(HEADER, started_at_ns=HEADER.started_at_ns + 1)
    data = b"".join(write_trace(rows, header=header)[0] for header in (HEADER, later))
    assert [track.slices for track in read_tracks(data)] == [[(0, 50, "load")]] * 2


def test_processes_of_two_machines_may_have_one_number() -> None:
    first = replace(HEADER, rank=0)
    other = replace(first, rank=1, host="other")
    data = b"".join(write_trace([], header=each, first=first)[0] for each in (first, other))
    described = [dict(fields(dict(fields(packet)).get(60, b""))) for _, packet in fields(data)]
    processes = [dict(fields(each[3])) for each in described if 3 in each]
    assert [process[6] for process in processes] == [
        b"rank 0: program",
        b"rank 1: program on other",
    ]
    assert len({process[1] for process in processes}) == 2
    assert all(0 < process[1] < 1 << 31 for process in processes)


def test_memory_stays_flat() -> None:
    batch = make_batch(run_sweeps("past", 12, 4))

    def peak_of(batches: int) -> int:
        writer = perfetto_trace.TraceWriter(HEADER, state())
        writer.add(batch)
        tracemalloc.start()
        for _ in range(batches):
            writer.add(batch)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    few, many = peak_of(3), peak_of(30)
    assert many < 1.5 * few, f"{few:,} bytes for 3 batches, {many:,} for 30"
