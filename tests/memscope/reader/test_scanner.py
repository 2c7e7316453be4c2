"""The file under damage: nothing crashes, and nothing wrong is said without "damaged"."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memscope.errors import MemscopeError
from memscope.events import KINDS, Kind
from memscope.format.frames import END, BatchEncoder, encode_schema, event_schema
from memscope.format.header import new_header
from memscope.reader.recording import Recording
from memscope.reader.scanner import Scanner, decide_state
from memscope.recorder.rows import Row, encode_rows, make_row

SIZES = (2, 2)


def write_small(path: Path, *, sizes: tuple[int, ...] = SIZES, has_end: bool = True) -> bytes:
    """A small recording, whole and without a writer: row i has step i and i × 10 bytes."""
    schema = event_schema(new_header())
    encoder, data, first = BatchEncoder(schema), encode_schema(schema), 0
    for sequence, size in enumerate(sizes, 1):
        rows = [small_row(number) for number in range(first, first + size)]
        batch = encode_rows(rows, 0, schema)
        data += encoder.encode(batch, sequence=sequence, first_row=first)
        first += size
    data += encoder.close(sequence=len(sizes) + 1, first_row=first) if has_end else b""
    path.write_bytes(data)
    return data


def small_row(number: int) -> Row:
    return make_row(Kind.UPLOAD, "slab", None, t_ns=number, step=number, bytes=number * 10)


def read_rows(path: Path) -> tuple[str, dict[int, int]]:
    with Recording(path) as recording:
        rows = {
            int(step): int(size)
            for batch in recording.batches()
            for step, size in zip(batch["step"], batch["bytes"], strict=True)
        }
        return recording.state.name, rows


def outcome(path: Path, data: bytes) -> str:
    """What reading ``data`` comes to: a state, "refused", or what is wrong with it."""
    path.write_bytes(data)
    try:
        state, rows = read_rows(path)
    except MemscopeError as error:
        return "refused" if str(error).count("\n") == 0 else f"two lines: {error}"
    if any(size != step * 10 for step, size in rows.items()):
        return f"wrong value in {rows}"
    if len(rows) < sum(SIZES) and state == "complete":
        return "rows missing in a complete file"
    return state


def outcomes_of_flips(path: Path, whole: bytes, bits: range) -> dict[str, int]:
    counts: dict[str, int] = {}
    for bit in bits:
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        result = outcome(path, bytes(data))
        counts[result] = counts.get(result, 0) + 1
    return counts


@pytest.mark.slow
def test_every_single_bit_flip_is_noticed(tmp_path: Path) -> None:
    whole = write_small(tmp_path / "whole.mscope")
    bits, step = len(whole) * 8, 4000
    with ProcessPoolExecutor(2) as pool:  # a crash of a worker raises BrokenProcessPool
        parts = [
            pool.submit(
                outcomes_of_flips,
                tmp_path / f"{start}.mscope",
                whole,
                range(start, min(start + step, bits)),
            )
            for start in range(0, bits, step)
        ]
        counts: dict[str, int] = {}
        for part in parts:
            for result, count in part.result().items():
                counts[result] = counts.get(result, 0) + count
    assert sum(counts.values()) == bits
    assert set(counts) <= {"refused", "damaged", "cut"}, counts
    assert counts["cut"] < counts["damaged"], counts  # only after the last event, so none is lost


@pytest.mark.slow
def test_every_cut_reads_what_is_whole(tmp_path: Path) -> None:
    whole = write_small(tmp_path / "whole.mscope")
    for length in range(len(whole)):
        assert outcome(tmp_path / "cut.mscope", whole[:length]) in ("refused", "cut"), length


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_replaced_stretches_never_give_wrong_values(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("mutated") / "run.mscope"
    whole = write_small(path)
    start = data.draw(st.integers(0, len(whole) - 1))
    gone = data.draw(st.integers(0, 400))
    junk = data.draw(st.binary(max_size=64))
    mutated = whole[:start] + junk + whole[start + gone :]
    result = outcome(path, mutated)
    assert result in ("refused", "damaged", "cut") or mutated == whole, result


def test_a_damaged_batch_is_skipped_and_its_rows_counted(tmp_path: Path) -> None:
    data = bytearray(write_small(tmp_path / "run.mscope", sizes=(3, 2, 5)))
    second = bytes(data).index(b"seq=0000000002")
    data[second] ^= 1
    (tmp_path / "run.mscope").write_bytes(data)
    state, rows = read_rows(tmp_path / "run.mscope")
    assert state == "damaged"
    assert sorted(rows) == [0, 1, 2, 5, 6, 7, 8, 9]
    with Recording(tmp_path / "run.mscope") as recording:
        assert recording.state.lost_rows == 2


def test_complete_files_are_ordinary_arrow_streams(tmp_path: Path) -> None:
    write_small(tmp_path / "run.mscope")
    table = pa.ipc.open_stream(tmp_path / "run.mscope").read_all()
    assert table["bytes"].to_pylist() == [number * 10 for number in range(sum(SIZES))]


def test_a_follower_sees_each_batch_once(tmp_path: Path) -> None:
    path = tmp_path / "run.mscope"
    whole = write_small(path)
    path.write_bytes(whole[:1])
    seen: list[int] = []
    with pytest.raises(MemscopeError, match="cut off inside its header"):
        Scanner(path)
    header = whole.index(b"\xff\xff\xff\xff", 8)
    path.write_bytes(whole[:header])
    with Scanner(path) as scanner, open(path, "ab") as file:
        for position in range(header, len(whole), 97):
            file.write(whole[position : position + 97])
            file.flush()
            seen += [frame.sequence for frame in scanner.poll()]
        assert seen == [1, 2]
        assert scanner.state().name == "complete"


@pytest.mark.parametrize(
    ("is_locked", "has_end", "has_damage", "name"),
    [
        (True, False, False, "running"),
        (False, True, False, "complete"),
        (False, False, False, "cut"),
        (True, False, True, "damaged"),
        (False, True, True, "damaged"),
    ],
)
def test_states(is_locked: bool, has_end: bool, has_damage: bool, name: str) -> None:
    assert decide_state(is_locked=is_locked, has_end=has_end, has_damage=has_damage) == name


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello, this is text", "not a memscope recording"),
        (b"\xff\xff\xff\xff\x10\x00\x00\x00" + b"x" * 64, "not a memscope recording"),
        (END, "not a memscope recording"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(MemscopeError, match=message):
        Recording(tmp_path / "x")


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MemscopeError, match="does not exist"):
        Recording(tmp_path / "none.mscope")
    with pytest.raises(MemscopeError, match="is a folder"):
        Recording(tmp_path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mscope")
    with pytest.raises(MemscopeError, match="not a regular file"):
        Recording(tmp_path / "pipe.mscope")


def test_a_newer_major_format_is_refused_by_name(tmp_path: Path) -> None:
    schema = event_schema({**new_header(), "format": [2, 0]})
    (tmp_path / "new.mscope").write_bytes(encode_schema(schema) + END)
    with pytest.raises(MemscopeError, match=r"format 2\.0.*reads 1\.x"):
        Recording(tmp_path / "new.mscope")


@pytest.mark.parametrize("started_at_ns", [10**30, -1, float("nan"), "noon"])
def test_a_start_at_no_time_on_a_calendar_is_refused(tmp_path: Path, started_at_ns: object) -> None:
    schema = event_schema({**new_header(), "started_at_ns": started_at_ns})
    path = tmp_path / "absurd.mscope"
    path.write_bytes(encode_schema(schema))
    with pytest.raises(MemscopeError, match="header"):
        Recording(path)


def test_a_newer_minor_format_is_read_without_its_unknown_columns(tmp_path: Path) -> None:
    header = {**new_header(), "format": [1, 7], "kinds": [*KINDS, "teleport"]}
    schema = event_schema(header).append(pa.field("mood", pa.string()))
    batch = encode_rows([small_row(4)], 0, event_schema(header))
    batch = pa.record_batch([*batch.columns, pa.array(["fine"])], schema=schema)
    encoder = BatchEncoder(schema)
    data = encode_schema(schema) + encoder.encode(batch, sequence=1, first_row=0)
    (tmp_path / "new.mscope").write_bytes(data + encoder.close(sequence=2, first_row=1))
    assert read_rows(tmp_path / "new.mscope") == ("complete", {4: 40})


def test_a_file_with_valid_checksums_but_other_columns_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64())], metadata=event_schema(new_header()).metadata)
    (tmp_path / "odd.mscope").write_bytes(encode_schema(schema) + END)
    with pytest.raises(MemscopeError):
        Recording(tmp_path / "odd.mscope")


def test_the_lock_of_a_killed_writer_is_gone(tmp_path: Path) -> None:
    script = (
        "import os, sys, memscope\n"
        "rec = memscope.Recorder(sys.argv[1])\n"
        "rec.mark('here')\n"
        "rec.flush(60)\n"
        "print(memscope.Recording(sys.argv[1]).state.name, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    path = tmp_path / "run.mscope"
    done = subprocess.run(
        [sys.executable, "-c", script, os.fspath(path)], capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.returncode) == ("running", -9)
    with Recording(path) as recording:
        assert (recording.state.name, recording.state.rows) == ("cut", 1)
