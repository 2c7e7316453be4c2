"""What a program reads that records itself wrongly: in the words of Python, not of the shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import memscope
from memscope.cli import main
from memscope.errors import MemscopeError
from tests.memscope.launch.programs import PYTHON, run_process


@pytest.mark.parametrize(
    ("keep_last", "problem", "next_step"),
    [
        ("foo", "keep_last='foo': ", "Write keep_last='1GiB', or keep_last='all'."),
        ("1MiB", "keep_last='1MiB' is too little", "keep_last='all' to keep everything."),
        ("", "keep_last='': ", "keep_last='1GiB'"),
        ("{}", "keep_last='{}': ", "keep_last='1GiB'"),
        (1 << 30, "keep_last=1073741824 is no text.", "Write keep_last='1GiB'."),
        (None, "keep_last=None is no text.", "Write keep_last='1GiB'."),
    ],
)
def test_size_is_named_as_python_writes_it(
    tmp_path: Path, keep_last: Any, problem: str, next_step: str
) -> None:
    with pytest.raises(MemscopeError) as raised:
        memscope.record(tmp_path / "run.mscope", keep_last=keep_last)
    assert raised.value.problem.startswith(problem)
    assert next_step in raised.value.next_step
    assert "--" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_file_that_is_there_is_overwritten_by_force_true(tmp_path: Path) -> None:
    path = tmp_path / "run.mscope"
    path.write_text("mine")
    with pytest.raises(MemscopeError, match=r"exists\. .* overwrite it with force=True\."):
        memscope.record(path)
    assert path.read_text() == "mine"
    memscope.record(path, force=True).close()
    with memscope.Recording(path) as recording:
        assert recording.state.name == "complete"


def test_folder_is_answered_with_a_file_in_it(tmp_path: Path) -> None:
    with pytest.raises(MemscopeError, match="is a folder") as raised:
        memscope.record(tmp_path)
    assert str(tmp_path / "run.mscope") in raised.value.next_step
    assert "-o" not in raised.value.next_step.replace(str(tmp_path), "")


def test_command_line_still_names_its_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.mscope"
    path.write_text("mine")
    assert main(["run", "-o", str(path), "-c", "1"]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["run", "--keep-last", "foo", "-o", str(tmp_path / "b.mscope"), "-c", "1"]) == 2
    assert "--keep-last foo: " in capsys.readouterr().err


def test_variable_is_named_where_it_says_the_size(tmp_path: Path) -> None:
    variables = {"MEMSCOPE_RECORD": str(tmp_path), "MEMSCOPE_KEEP_LAST": "foo"}
    ended = run_process([PYTHON, "-c", "print('on')"], tmp_path, variables)
    assert (ended.code, ended.out) == (0, "on\n")
    (said,) = ended.said
    assert said.startswith("memscope: not recorded: MEMSCOPE_KEEP_LAST=foo: ")
    assert list(tmp_path.iterdir()) == []
