"""The chain of segments: what is kept, what is summed, and that it opens whatever happens."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memscope.events import KINDS, Kind
from memscope.format.header import Segment, new_header
from memscope.reader.chain import remove_recording
from memscope.reader.recording import Recording
from memscope.reader.scanner import Batch
from memscope.recorder.output_file import OutputFile
from memscope.recorder.rows import Row, encode_rows, make_row
from memscope.recorder.segment_encoder import SegmentEncoder
from memscope.recorder.segments import Segments

LIMIT = 1 << 18
SIZE = 200  # events a batch: a segment takes about five batches
KEPT = ("fact", "step", "oom", "mark", "phase")


def upload(number: int) -> Row:
    """Event ``number`` of a program that uploads ten layers a step."""
    data = {"text": os.urandom(16).hex()}  # so that bytes on disk grow with events
    return make_row(Kind.UPLOAD, "slab", data, t_ns=number, step=number // 10, bytes=1)


@dataclass
class Model:
    """What a plain list of all that was written says of what is read."""

    rows: list[tuple[str, int, int]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def write(self, segments: Segments, rows: list[Row]) -> None:
        segments.write(rows)
        for row in rows:
            self.rows.append((KINDS[row[1]], row[0], row[2]))
            if row[1] == Kind.FACT:
                self.facts[str(row[4])] = row[8]

    def check(self, path: Path, *, is_running: bool = True) -> None:
        """All from ``whole_from_ns`` on is there as it was, and what is older only thinner."""
        with Recording(path) as recording:
            state, batches = recording.state, list(recording.batches())
        assert state.name == ("running" if is_running else "complete"), state
        read = [row for batch in batches for row in plain(batch)]
        assert read[-1][:3] == self.rows[-1]
        whole = [row for row in self.rows if row[1] >= state.whole_from_ns]
        late = [row[:3] for row in read if row[1] >= state.whole_from_ns and row[3] != "head"]
        assert late[-len(whole) :] == whole
        if not state.removed_rows:
            assert totals(read) == Counter(kind for kind, _, _ in self.rows)
        facts = {b.name(r): b.data(r) for b in batches for r in b.where(Kind.FACT).tolist()}
        assert {key: facts.get(key) for key in self.facts} == self.facts


def plain(batch: Batch) -> list[tuple[str, int, int, Any]]:
    is_head = batch.name(0) == "recorder.segment"
    return [
        (
            KINDS[kind],
            int(batch["t_ns"][row]),
            int(batch["step"][row]),
            "head" if is_head else batch.data(row),
        )
        for row, kind in enumerate(batch["kind"].tolist())
    ]


def totals(rows: list[tuple[str, int, int, Any]]) -> Counter[str]:
    """Events by kind, those among them that sums stand for."""
    counts: Counter[str] = Counter()
    for kind, _, _, data in rows:
        if kind == "dropped":
            counts[data["kind"]] += data["rows"]
        elif data != "head":
            counts[kind] += 1
    return counts


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def write_many(segments: Segments, batches: int, *, first: int = 0, size: int = SIZE) -> int:
    """``batches`` batches; the number of the next event."""
    for number in range(first, first + batches * size, size):
        segments.write([upload(each) for each in range(number, number + size)])
    return first + batches * size


def tidy(segments: Segments) -> None:
    for _ in range(200):
        segments.tidy()


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["write", "tidy", "mark", "oom", "fact"]), st.integers(1, 12)),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(OPERATIONS)
def test_any_sequence_reads_as_a_plain_list_says(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("chain")
    path, model, number = folder / "run.mscope", Model(), 0
    segments = Segments(path, LIMIT, 0)
    for what, count in [("write", 1), *operations]:
        if what == "tidy":
            for _ in range(count):
                segments.tidy()
        for _ in range(count if what == "write" else what != "tidy"):
            rows = [upload(each) for each in range(number, number + SIZE)]
            number += SIZE + 2
            extra = {"mark": Kind.MARK, "oom": Kind.OOM, "fact": Kind.FACT}.get(what)
            if extra is not None:
                rows.append(make_row(extra, f"key {number % 3}", {"n": number}, t_ns=number - 2))
            rows.append(make_row(Kind.STEP, None, None, t_ns=number - 1, step=number // 10))
            model.write(segments, rows)
            assert disk_bytes(folder) <= LIMIT
        model.check(path)
    segments.end()
    segments.close()
    model.check(path, is_running=False)


@pytest.mark.slow
def test_the_end_is_whole_older_events_are_sums_and_the_oldest_gone(tmp_path: Path) -> None:
    segments = Segments(tmp_path / "run.mscope", LIMIT, 0)
    number = 0
    for _ in range(300):
        number = write_many(segments, 2, first=number)
        tidy(segments)
    segments.end()
    segments.close()
    with Recording(tmp_path / "run.mscope") as recording:
        state = recording.state
        rows = [row for batch in recording.batches() for row in plain(batch)]
    assert state.name == "complete"
    assert min(state.removed_rows, state.thinned_rows, state.whole_from_ns) > 0
    assert "old events were deleted" in str(state)
    sums = [row for row in rows if row[0] == "dropped"]
    assert {(row[3]["kind"], row[3]["rows"]) for row in sums[20:-20]} == {("upload", 10)}
    assert disk_bytes(tmp_path) <= LIMIT


def test_pins_keep_their_segments_whole_and_an_oom_outlasts_marks(tmp_path: Path) -> None:
    segments = Segments(tmp_path / "run.mscope", LIMIT, 0)
    number = write_many(segments, 1)
    segments.write([make_row(Kind.OOM, None, {"scope": "engine"}, t_ns=number)])
    for _ in range(150):
        number = write_many(segments, 2, first=number)
        segments.write([make_row(Kind.MARK, "again", None, t_ns=number)])
        tidy(segments)
    with Recording(tmp_path / "run.mscope") as recording:
        rows = [row for batch in recording.batches() for row in plain(batch)]
    times = [time for kind, time, _, _ in rows if kind == "upload"]
    assert times[:SIZE] == list(range(SIZE)), "the events before the error"
    assert disk_bytes(tmp_path) <= LIMIT


def test_an_oom_of_a_request_pins_nothing(tmp_path: Path) -> None:
    segments = Segments(tmp_path / "run.mscope", LIMIT, 0)
    segments.write([make_row(Kind.OOM, None, {"scope": "request"})])
    write_many(segments, 20)
    assert [each.pin for each in segments._old] == [None] * len(segments._old) != []


def test_what_there_is_no_time_to_thin_is_removed_and_counted(tmp_path: Path) -> None:
    segments = Segments(tmp_path / "run.mscope", LIMIT, 0)
    number = write_many(segments, 200)  # and no moment to tidy in
    assert disk_bytes(tmp_path) <= LIMIT
    removed = segments.removed
    assert removed.unthinned_rows == removed.rows > 0
    with Recording(tmp_path / "run.mscope") as recording:
        assert recording.state.removed_rows == removed.rows
        assert recording.state.name == "running"
        counts = totals([row for batch in recording.batches() for row in plain(batch)])
    assert counts["upload"] == number - removed.rows


def test_each_segment_opens_alone(tmp_path: Path) -> None:
    segments = Segments(tmp_path / "run.mscope", LIMIT, 0)
    segments.write([make_row(Kind.FACT, "model", {"layers": 4})])
    write_many(segments, 30)
    paths = sorted(tmp_path.glob("run.0*.mscope"))
    assert len(paths) > 2
    for path in paths:
        with Recording(path) as recording:
            assert recording.state.name == "complete"
            batch = next(recording.batches())
            facts = {batch.name(row): batch.data(row) for row in batch.where(Kind.FACT).tolist()}
        assert facts["model"] == {"layers": 4}


def test_a_process_with_four_digits_is_no_segment(tmp_path: Path) -> None:
    path = tmp_path / "run.mscope"
    other = OutputFile(tmp_path / "run.0001.mscope")
    encoder = SegmentEncoder(new_header() | {"pid": 1}, Segment())
    batch = encode_rows([make_row(Kind.MARK, "child", None)], 0, encoder.schema)
    other.write(encoder.begin() + encoder.encode(batch) + encoder.end())
    other.close()
    before = other.path.read_bytes()
    segments = Segments(path, LIMIT, 0)
    write_many(segments, 15)
    assert other.path.read_bytes() == before
    assert (tmp_path / "run.0001-2.mscope").exists()
    with Recording(path) as recording:
        assert recording.state.removed_rows == 0
        assert not any(batch.where(Kind.MARK).size for batch in recording.batches())
    remove_recording(path)
    assert list(tmp_path.iterdir()) == [other.path]


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A complete recording of more than three segments, none of them thinned."""
    path = tmp_path / "run.mscope"
    segments = Segments(path, LIMIT, 0)
    write_many(segments, 20)
    segments.end()
    segments.close()
    assert path.with_name("run.0003.mscope").exists()
    return path


def test_an_empty_segment_is_damage_and_not_what_was_removed(chain: Path) -> None:
    with Recording(chain) as recording:
        before = recording.state
    os.truncate(chain.with_name("run.0002.mscope"), 0)
    with Recording(chain) as recording:
        state = recording.state
    assert (before.name, state.name) == ("complete", "damaged")
    assert state.lost_rows == before.rows - (state.rows - 1)  # the next one's head is read
    assert state.removed_rows == 0


def test_segments_whose_names_were_swapped_are_read_in_order(chain: Path) -> None:
    with Recording(chain) as recording:
        before = recording.state
    second, third = (chain.with_name(f"run.000{number}.mscope") for number in (2, 3))
    second.rename(chain.with_name("aside"))
    third.rename(second)
    chain.with_name("aside").rename(third)
    with Recording(chain) as recording:
        assert recording.state == before
        times = [int(batch["t_ns"][-1]) for batch in recording.batches()]
    assert times == sorted(times)
