"""`memscope export`: files that other programs read, all of them or none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memscope.events import Kind
from memscope.format.header import new_header
from tests.memscope.analysis.build import event
from tests.memscope.cli.recordings import damage_batch, write_recording
from tests.memscope.cli.verb_run import Run
from tests.memscope.interop.perfetto.perfetto_traces import read_tracks


def read_arrow(path: Path) -> pa.Table:
    with open(path, "rb") as file:
        return pa.ipc.open_stream(file).read_all()


def test_arrow_is_a_clean_copy_of_a_cut_file(memscope: Run, cut: Path, whole: Path) -> None:
    found = memscope("export", cut, "--to", "arrow", "-o", "copy.arrow")
    table = read_arrow(Path("copy.arrow"))
    table.validate(full=True)
    about = json.loads(table.schema.metadata[b"memscope.export"])
    assert found.code == 3
    assert "the recording is partial (cut" in found.err
    assert about["state"]["name"] == "cut"
    assert table.num_rows == about["state"]["rows"]
    assert memscope("export", whole, "--to", "arrow", "-o", "whole.arrow").code == 0
    assert table.equals(read_arrow(Path("whole.arrow")))


def test_arrow_of_a_damaged_file_holds_what_was_whole(memscope: Run, whole: Path) -> None:
    damage_batch(whole)
    assert memscope("export", whole, "--to", "arrow", "-o", "copy.arrow").code == 3
    table = read_arrow(Path("copy.arrow"))
    table.validate(full=True)
    assert table.num_rows > 0


def test_parquet_names_the_kinds(memscope: Run, tmp_path: Path) -> None:
    rows = [event(Kind.UPLOAD, 1, layer=3, bytes=5), event(100, 2), event(-3, 3)]
    path = write_recording(tmp_path / "small.mscope", rows)
    assert memscope("export", path, "--to", "parquet", "-o", "copy.parquet").code == 0
    table = pq.read_table("copy.parquet")
    assert table.column("kind").to_pylist() == ["upload", "kind 100", "kind -3"]
    assert table.column("bytes").to_pylist() == [5, None, None]


def test_a_trace_for_perfetto_holds_every_event(memscope: Run, whole: Path) -> None:
    found = memscope("export", whole, "--to", "perfetto", "-o", "run.pftrace")
    tracks = read_tracks(Path("run.pftrace").read_bytes())
    held = sum(len(each.slices) + len(each.instants) + len(each.counts) for each in tracks)
    assert (found.code, found.err) == (0, f"run.pftrace: {held:,} events\n")
    assert {"steps", "layers", "uploads", "evictions"} <= {track.name for track in tracks}


def test_a_trace_holds_all_processes_of_a_run(memscope: Run, tmp_path: Path) -> None:
    rows = [event(Kind.MARK, 1, name="here")]
    folder = tmp_path / "run"
    folder.mkdir()
    for pid in (1, 2):
        header = {**new_header(), "run_id": "same", "pid": pid}
        write_recording(folder / f"{pid}.mscope", rows, header=header, is_complete=pid == 1)
    found = memscope("export", folder, "--to", "perfetto", "-o", "run.pftrace")
    tracks = read_tracks(Path("run.pftrace").read_bytes())
    assert [track.name for track in tracks] == ["marks", "marks", "recording"]
    assert found.code == 3
    assert found.err.startswith("run.pftrace: 2 events; 2 processes; the recording is partial (cut")


def test_a_trace_of_a_cut_file_says_so(memscope: Run, cut: Path) -> None:
    found = memscope("export", cut, "--to", "perfetto", "-o", "run.pftrace")
    assert found.code == 3
    assert "the recording is partial (cut" in found.err
    assert b"recording cut" in Path("run.pftrace").read_bytes()


def test_a_device_or_pipe_is_never_replaced(memscope: Run, whole: Path) -> None:
    os.mkfifo("pipe")
    found = memscope("export", whole, "--to", "arrow", "-o", "pipe", "--force")
    assert found.code == 2
    assert "not a regular file" in found.err
    assert Path("pipe").is_fifo()


def test_nothing_is_overwritten_without_force(memscope: Run, whole: Path) -> None:
    Path("out.arrow").write_text("mine")
    argv = ("export", whole, "--to", "arrow", "-o", "out.arrow")
    found = memscope(*argv)
    assert (found.code, Path("out.arrow").read_text()) == (2, "mine")
    assert "--force" in found.err
    assert memscope(*argv, "--force").code == 0
    assert read_arrow(Path("out.arrow")).num_rows


@pytest.mark.parametrize("output", ["nowhere/x.arrow", "folder", "file/x.arrow", "x" * 300])
def test_bad_outputs_leave_nothing(memscope: Run, whole: Path, output: str) -> None:
    Path("folder").mkdir()
    Path("file").write_text("")
    before = sorted(Path().rglob("*"))
    found = memscope("export", whole, "--to", "arrow", "-o", output)
    assert found.code == 2
    assert found.err.startswith("memscope: ")
    assert sorted(Path().rglob("*")) == before


def test_a_fault_on_the_way_leaves_nothing(
    memscope: Run, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    before = sorted(Path().iterdir())
    found = memscope("export", whole, "--to", "parquet", "-o", "x.parquet")
    assert found.code == 2
    assert "No space left on device" in found.err
    assert sorted(Path().iterdir()) == before


def test_the_format_must_be_known(memscope: Run, whole: Path) -> None:
    found = memscope("export", whole, "--to", "csv", "-o", "x")
    assert found.code == 2
    assert "parquet" in found.err
