"""Files of a run that hold no readable header: the run is partial, and everything says so."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from memscope.reader.recording import Recording
from memscope.reader.run_files import find_run
from tests.memscope.cli.processes import GIB, record
from tests.memscope.cli.verb_run import Run

BROKEN = "memory.peak_bytes <= 1 MiB"


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """A process of a run that held 1 GiB, and beside it a child's file cut inside its header."""
    path = record(tmp_path / "run.mscope", "a", pid=100, reserved=GIB)
    child = record(tmp_path / "run.200.mscope", "a", pid=200)
    child.write_bytes(child.read_bytes()[:60])
    return path


def damage_header(path: Path, run_id: str) -> None:
    """A recording whose header is damaged behind the run id."""
    data = record(path, run_id, pid=300).read_bytes()
    at = data.index(b'"host": ')
    path.write_bytes(data[:at] + b"\0\0\0\0" + data[at + 4 :])


def test_summary_is_partial_in_words_and_json(memscope: Run, run_file: Path) -> None:
    shown = memscope("summary", run_file)
    assert shown.code == 3
    assert "1 file of this run has no readable header (run.200.mscope)" in shown.out
    assert "PARTIAL" in shown.out
    data = json.loads(memscope("summary", run_file, "--json").out)
    assert (data["is_partial"], data["left_out"]) == (True, ["run.200.mscope"])
    assert data["state"] == "complete", "what is there is whole"


def test_check_is_partial_unless_a_limit_is_broken(memscope: Run, run_file: Path) -> None:
    held = memscope("check", run_file, "--limit", "memory.peak_bytes <= 2 GiB")
    assert held.code == 3
    assert "the recording is partial" in held.out
    assert "no readable header (run.200.mscope)" in held.out
    assert memscope("check", run_file, "--limit", BROKEN).code == 1
    data = json.loads(memscope("check", run_file, "--json").out)
    assert data["is_partial"]


@pytest.mark.parametrize("verb", ["report", "explain", "export"])
def test_every_verb_on_the_whole_run_is_partial(memscope: Run, run_file: Path, verb: str) -> None:
    more = ("--to", "perfetto", "-o", "run.trace") if verb == "export" else ()
    assert memscope(verb, run_file, *more).code == 3


def test_a_baseline_is_not_written_without_a_process(memscope: Run, run_file: Path) -> None:
    found = memscope("check", run_file, "--write-baseline", "base.toml")
    assert found.code == 2
    assert "is partial, so no baseline was written" in found.err


@pytest.mark.parametrize("content", [b"", b"\0" * 4096])
def test_a_file_named_as_a_child_is_one_whatever_is_left_of_it(
    memscope: Run, run_file: Path, content: bytes
) -> None:
    run_file.with_name("run.200.mscope").write_bytes(content)
    assert memscope("summary", run_file).code == 3
    assert memscope("check", run_file.parent).code == 3


def test_what_is_being_begun_is_no_damage(memscope: Run, run_file: Path) -> None:
    child = run_file.with_name("run.200.mscope")
    child.write_bytes(b"")
    with child.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        shown = memscope("summary", run_file)
        assert shown.code == 0
        assert "PARTIAL" not in shown.out
        assert memscope("check", run_file, "--limit", "memory.peak_bytes <= 2 GiB").code == 0
    assert memscope("summary", run_file).code == 3, "its writer has gone"


@pytest.mark.parametrize(
    ("name", "run_id", "code"),
    [("run.300.mscope", "b", 0), ("other.mscope", "b", 0), ("other.mscope", "a", 3)],
)
def test_the_run_id_that_is_left_in_a_header_says_whose_it_is(
    memscope: Run, run_file: Path, name: str, run_id: str, code: int
) -> None:
    run_file.with_name("run.200.mscope").unlink()
    damage_header(run_file.with_name(name), run_id)
    shown = memscope("summary", run_file.parent)
    assert shown.code == code
    assert name in shown.err


def test_what_an_older_run_of_the_same_name_left_is_not_of_this_one(
    memscope: Run, run_file: Path
) -> None:
    child = run_file.with_name("run.200.mscope")
    child.write_bytes(b"")
    with Recording(run_file) as recording:
        begun = recording.header.started_at_ns
    for before_s, code in ((60, 0), (0, 3)):
        os.utime(child, ns=(begun - before_s * 10**9,) * 2)
        for argument in (run_file, run_file.parent):
            assert memscope("summary", argument).code == code


def test_files_of_no_run_leave_it_whole(memscope: Run, run_file: Path) -> None:
    run_file.with_name("run.200.mscope").unlink()
    run_file.with_name("notes.mscope").write_bytes(b"a foreign file")
    run_file.with_name("run.300.mscope").mkdir()
    record(run_file.with_name("run-002.mscope"), "c", pid=300).write_bytes(b"\xff\xff\xff\xff")
    for argument in (run_file, run_file.parent):
        assert memscope("summary", argument).code == 0
        assert find_run(argument).left_out == ()
