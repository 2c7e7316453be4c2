"""`memscope run --cupti` asks every process of the run for it, and says what it lacks."""

from __future__ import annotations

import os
from pathlib import Path

from tests.memscope.launch.programs import PYTHON, Ended, run_process

PROGRAM = "import os; print(os.environ.get('MEMSCOPE_CUPTI'))"


def run(folder: Path, *options: str, **environment: str) -> Ended:
    words = ["run", *options, "-o", "run.mscope", "-c", PROGRAM]
    cache = {"MEMSCOPE_CACHE_DIR": str(folder / "cache")}
    return run_process([PYTHON, "-m", "memscope", *words], folder, cache | environment)


def test_the_programs_processes_are_asked(tmp_path: Path) -> None:
    assert run(tmp_path, "--cupti").out == "1\n"


def test_without_the_option_they_are_not(tmp_path: Path) -> None:
    assert run(tmp_path).out == "None\n"
    assert not (tmp_path / "cache").exists()


def test_without_a_compiler_one_line_says_so_and_the_program_runs(tmp_path: Path) -> None:
    ended = run(tmp_path, "--cupti", PATH=str(tmp_path), CC="")
    assert (ended.code, ended.out) == (0, "1\n")
    assert any("no C compiler" in line and "gcc" in line for line in ended.said)


def test_nothing_of_it_is_loaded_unless_asked_for(tmp_path: Path) -> None:
    code = (
        "import sys, memscope\n"
        f"memscope.record({os.fspath(tmp_path / 'run.mscope')!r}).close()\n"
        "print('memscope.probes.cupti.probe' in sys.modules)"
    )
    assert run_process([PYTHON, "-c", code], tmp_path).out == "False\n"
