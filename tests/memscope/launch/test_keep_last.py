"""`memscope run --keep-last`: each process of the run keeps to it; a bad size starts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from memscope.reader.recording import Recording
from memscope.reader.run_files import find_run
from tests.memscope.launch.programs import PYTHON, record, run_process

MIB = 1 << 20
MANY = (
    "import os, memscope\n"
    "def fill():\n"
    "    recorder = memscope.active_recorder()\n"
    "    for number in range(16):\n"
    "        text = os.urandom(1 << 19).hex()\n"
    "        for at in range(0, 1 << 20, 1 << 12):\n"
    "            recorder.emit(4, number, name=text[at:at + (1 << 12)])\n"
    "        assert recorder.flush(30)\n"
)


def bytes_of(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.stem}*"))


def test_each_process_keeps_within_the_size(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        f"{MANY}import multiprocessing\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=fill)\n"
        "    child.start(); child.join(); print(child.exitcode); fill()\n"
    )
    ended = record(tmp_path, "--keep-last", "4194304B", "program.py")
    assert (ended.code, ended.out) == (2, ""), "less than is ever kept"
    ended = record(tmp_path, "--keep-last", "8MiB", "program.py")
    assert (ended.code, ended.out, ended.err) == (0, "0\n", "")
    paths = find_run(tmp_path / "run.mscope").paths
    assert len(paths) == 2
    for path in paths:
        with Recording(path) as recording:
            assert recording.state.name == "complete"
            assert recording.header.segment.number > 4
    assert bytes_of(paths[1]) <= 8 * MIB
    assert bytes_of(paths[0]) <= 16 * MIB, "the child's lie beside its parent's"


def test_the_variable_says_it_where_the_option_does_not(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"{MANY}fill()\n")
    for size, segments in (("8MiB", range(5, 99)), ("all", [1])):
        variables = {"MEMSCOPE_KEEP_LAST": size}
        command = [PYTHON, "-m", "memscope", "run", "-o", tmp_path / f"{size}.mscope"]
        ended = run_process([*command, "program.py"], tmp_path, variables)
        assert (ended.code, ended.err) == (0, "")
        with Recording(tmp_path / f"{size}.mscope") as recording:
            assert recording.header.segment.number in segments


@pytest.mark.parametrize("size", ["", "1 parsec", "none", "12KiB"])
def test_a_size_that_is_none_starts_nothing(tmp_path: Path, size: str) -> None:
    (tmp_path / "program.py").write_text("print('started')\n")
    ended = record(tmp_path, "--keep-last", size, "program.py")
    assert (ended.code, ended.out) == (2, "")
    assert list(tmp_path.iterdir()) == [tmp_path / "program.py"]
