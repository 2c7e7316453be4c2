"""Several processes of one run in one summary."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from memscope.reader.recording import open_recording
from memscope.reader.run_files import find_run
from tests.memscope.cli.processes import GIB, begin, record
from tests.memscope.cli.verb_run import Run


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A parent that never touches CUDA, a child that holds 1 GiB, and a stranger's recording."""
    path = record(tmp_path / "run.mscope", "a", pid=100)
    record(tmp_path / "run.200.mscope", "a", pid=200, reserved=GIB)
    record(tmp_path / "run.300.mscope", "b", pid=300, reserved=2 * GIB)
    return path


def test_summary_names_the_child_that_holds_the_memory(memscope: Run, server: Path) -> None:
    shown = memscope("summary", server)
    assert shown.code == 0
    assert "Child process 200 held the most: 1.00 GiB at its peak." in shown.out
    assert shown.out.count("recording  ") == 2
    assert "300" not in shown.out


def test_a_reason_that_all_processes_share_is_said_once(memscope: Run, server: Path) -> None:
    out = memscope("summary", server, "--all").out
    assert out.count("no weight upload is recorded") == 1
    assert out.index("not applicable in any process") > out.rindex("recording  ")
    child, parent = out.partition("in any process")[0].split("recording  ")[1:]
    no_device = re.compile("no (device|GPU) is recorded")
    assert no_device.search(parent), "the parent's own reason stays with it"
    assert not no_device.search(child)
    alone = memscope("summary", server.with_name("run.300.mscope"), "--all").out
    assert "in any process" not in alone
    assert "no weight upload is recorded" in alone


@pytest.mark.parametrize("verb", ["summary", "check", "report"])
def test_an_empty_name_is_no_recording(memscope: Run, server: Path, verb: str) -> None:
    assert server.is_file()
    outcome = memscope(verb, "")
    assert outcome.code == 2
    assert "the value is empty" in outcome.err


def test_json_has_every_process(memscope: Run, server: Path) -> None:
    data = json.loads(memscope("summary", server, "--json").out)
    assert data["holder"] == 200
    assert [process["pid"] for process in data["processes"]] == [100, 200]
    assert data["processes"][1]["device_peaks"] == {"cuda:0": GIB}
    child = data["processes"][1]["summary"]
    assert child["metrics"]["memory.peak_bytes"]["value"] == GIB
    assert data["metrics"]["memory.peak_bytes"]["value"] is None


def test_the_holder_is_shown_first(memscope: Run, server: Path) -> None:
    out = memscope("summary", server).out
    shown = [line.split()[1] for line in out.splitlines() if line.startswith("recording ")]
    assert [Path(name).name for name in shown] == ["run.200.mscope", "run.mscope"]
    table = out.partition("recording  ")[0]
    assert table.index("  100 ") < table.index("  200 "), "the table is in the order of time"


def test_two_metrics_of_several_devices_say_what_they_are(memscope: Run, server: Path) -> None:
    recorder = begin(server.with_name("run.250.mscope"), "a", 250)
    for device, size in enumerate((GIB, 2 * GIB)):
        recorder.fact(f"cuda.{device}", {"kind": "cuda", "total_bytes": 140 * GIB})
        recorder.sample("torch.reserved_bytes", bytes=size, device=device)
    recorder.close()
    out = memscope("summary", server).out
    assert "3.00 GiB on 2 GPUs" in out
    assert "memory.peak_bytes  2.00 GiB (cuda:1, the highest of 2 GPUs)" in out
    assert '"peak, all GPUs" adds up' in out
    data = json.loads(memscope("summary", server, "--json").out)
    held = data["processes"][2]
    assert held["device_bytes"] == sum(held["device_peaks"].values()) == 3 * GIB
    metric = held["summary"]["metrics"]["memory.peak_bytes"]
    assert metric["value"] == held["device_peaks"]["cuda:1"]
    assert metric["of"] == "cuda:1, the highest of 2 GPUs"
    assert "of" not in data["processes"][1]["summary"]["metrics"]["memory.peak_bytes"]


def test_child_named_alone_is_shown_alone(memscope: Run, server: Path) -> None:
    shown = memscope("summary", server.with_name("run.200.mscope"))
    assert "run of" not in shown.out


def test_folder_and_glob_open_the_newest_run(memscope: Run, server: Path) -> None:
    shown = memscope("summary", server.parent)
    assert "1.00 GiB at" not in shown.out
    assert "older run is in the folder" in shown.err
    globbed = find_run(server.parent / "run*[0-9].mscope")
    assert [path.name for path in globbed.paths] == ["run.300.mscope"]


def test_every_verb_takes_a_folder(server: Path) -> None:
    with open_recording(server.parent) as recording:
        assert recording.header.pid == 300


def test_file_without_header_is_left_out_and_named(memscope: Run, server: Path) -> None:
    server.with_name("notes.mscope").write_bytes(b"a foreign file")
    shown = memscope("summary", server.parent)
    assert shown.code == 0
    assert "notes.mscope" in shown.err


def test_folder_without_recording_is_refused(memscope: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    shown = memscope("summary", tmp_path / "empty")
    assert shown.code == 2
    assert "holds no recording" in shown.err


def test_one_process_is_as_ever(memscope: Run, tmp_path: Path) -> None:
    record(tmp_path / "one.mscope", "c", pid=1)
    shown = memscope("summary", tmp_path / "one.mscope")
    assert shown.out.startswith("recording")
    assert "processes" not in json.loads(memscope("summary", "--json", "one.mscope").out)


def test_part_that_was_cut_makes_the_run_partial(memscope: Run, server: Path) -> None:
    child = server.with_name("run.200.mscope")
    child.write_bytes(child.read_bytes()[:-8])
    assert memscope("summary", server).code == 3
