"""A script that is not there: Python says so as ever, and no recording of that is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from memscope.launch.program import command_words, missing_script
from memscope.reader.recording import Recording
from tests.memscope.launch.programs import PYTHON, record, run_process


@pytest.mark.parametrize("name", ["nosuch.py", "no/such.py", "nosuch.pyz"])
def test_python_says_it_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    plain = run_process([PYTHON, name, "-o", "x"], tmp_path)
    ended = record(tmp_path, name, "-o", "x")
    assert (ended.code, ended.out, ended.err) == (plain.code, plain.out, plain.err)
    assert ended.code != 0
    assert ended.said == (f"memscope: nothing was recorded: the file {name} does not exist.\n",)
    assert list(tmp_path.iterdir()) == []


def test_a_recording_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('ran')\n")
    assert record(tmp_path, "program.py").out == "ran\n"
    before = (tmp_path / "run.mscope").read_bytes()
    assert record(tmp_path, "--force", "nosuch.py").code == 2
    assert (tmp_path / "run.mscope").read_bytes() == before


def test_a_folder_of_recordings_gets_none_either(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    record(tmp_path, "nosuch.py", MEMSCOPE_RECORD=str(folder))
    assert list(folder.iterdir()) == []


def test_what_python_alone_can_tell_is_recorded(tmp_path: Path) -> None:
    assert record(tmp_path, "-m", "no_such_module").code == 1
    with Recording(tmp_path / "run.mscope") as recording:
        assert recording.state.name == "complete"


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "nosuch"],
        ["-c", "nosuch.py"],
        ["--", sys.executable],
        ["--", sys.executable, "-u", "nosuch.py"],
        ["--", sys.executable, "-"],
        ["--", sys.executable, ""],
        ["--", "sh", "nosuch.py"],
        ["there.py"],
        ["folder"],
    ],
)
def test_only_what_is_certain_is_missing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there.py").touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    assert missing_script(command_words(words)) is None


@pytest.mark.parametrize("python", [sys.executable, "python", "/usr/bin/python3.13"])
def test_an_interpreter_that_is_named(python: str) -> None:
    assert missing_script([python, "nosuch.py"]) == "nosuch.py"
    assert missing_script([python, __file__]) is None


def test_the_corrected_command_finds_the_name_free(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran')\n")
    python = Path(PYTHON)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    ended = record(tmp_path, "--", python.name, "trian.py", PATH=path)
    assert ended.code == 2
    assert ended.said == ("memscope: nothing was recorded: the file trian.py does not exist.\n",)
    assert record(tmp_path, "--", python.name, "train.py", PATH=path).out == "ran\n"
    assert (tmp_path / "run.mscope").exists()
