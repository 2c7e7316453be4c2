"""Files that appear whole, and what a killed process left."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memscope_runners.checkpoint.checkpoint_writer import write_checkpoint
from memscope_runners.checkpoint.synthetic import TINY, SyntheticModel
from memscope_runners.checkpoint.unfinished_file import remove_leftovers, replacing

KILLED = """
import os, signal, sys
from pathlib import Path
from memscope_runners.checkpoint.checkpoint_writer import write_checkpoint
from memscope_runners.checkpoint.synthetic import TINY, SyntheticModel

def die(what, done, total):
    if done == 2:
        os.kill(os.getpid(), signal.SIGKILL)

write_checkpoint(SyntheticModel(TINY), Path(sys.argv[1]), die)
"""


def test_what_kill_9_left_goes_with_the_next_quantizing(tmp_path: Path) -> None:
    process = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "a.q8.safetensors")])
    assert process.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".a.q8.safetensors.")
    assert left.stat().st_size > TINY.layer_layout.bytes
    write_checkpoint(SyntheticModel(TINY), tmp_path / "b.q8.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["b.q8.safetensors"]


def test_what_is_being_written_stays(tmp_path: Path) -> None:
    target = tmp_path / "a.q8.safetensors"
    with replacing(target) as file:
        file.write(b"half")
        remove_leftovers(tmp_path, ".q8.safetensors")
        file.write(b" and half")
    assert target.read_bytes() == b"half and half"
    assert list(tmp_path.iterdir()) == [target]


def test_other_files_stay(tmp_path: Path) -> None:
    names = {"a.q8.safetensors", ".a.q8.safetensors.old", ".fetch-7", ".a.safetensors.7", "b.7"}
    for name in names:
        (tmp_path / name).touch()
    remove_leftovers(tmp_path, ".q8.safetensors")
    assert {path.name for path in tmp_path.iterdir()} == names


def test_an_error_leaves_the_old_file_alone(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("old")
    with pytest.raises(TypeError), replacing(target) as file:
        file.writelines([b"new", None])
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
