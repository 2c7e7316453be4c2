"""`memscope run` of programs that run out of memory: as without, and explained afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.memscope.launch.programs import PYTHON, record, run_process

TORCH = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
    "which 5.00 GiB is free. Of the allocated memory 72.00 GiB is allocated by PyTorch, and 1.00 "
    "GiB is reserved by PyTorch but unallocated."
)
PROGRAMS = {
    "torch's text": (f"class OutOfMemoryError(RuntimeError): 0\nraise OutOfMemoryError({TORCH!r})",
                     "shortage"),
    "the host": ("def f(): raise MemoryError\nf()", "not_device_memory"),
    "raised from": (f"try:\n    raise RuntimeError({TORCH!r})\nexcept RuntimeError as e:\n"
                    "    raise ValueError('no') from e", "shortage"),
    "a thread": (f"import threading\ndef f(): raise RuntimeError({TORCH!r})\n"
                 "t = threading.Thread(target=f); t.start(); t.join()", "shortage"),
    "its own hook": ("import sys\nbefore = sys.excepthook\n"
                     "def hook(*e): print('mine', e[0].__name__); before(*e)\n"
                     f"sys.excepthook = hook\nraise RuntimeError({TORCH!r})", "shortage"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "diagnosis"), PROGRAMS.values(), ids=PROGRAMS)
def test_program_that_dies_of_it_is_as_without(source: str, diagnosis: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(source)
    plain = run_process([PYTHON, "program.py"], tmp_path)
    recorded = record(tmp_path, "--history", "100", "program.py")
    assert (recorded.code, recorded.out, recorded.err) == (plain.code, plain.out, plain.err)
    explained = run_process([PYTHON, "-m", "memscope", "explain", "run.mscope", "--json"], tmp_path)
    assert explained.code == 0
    assert json.loads(explained.out)["diagnosis"] == diagnosis


def test_history_of_nothing_is_refused(tmp_path: Path) -> None:
    ended = record(tmp_path, "--history", "0", "-c", "print(1)")
    assert (ended.code, ended.out) == (2, "")
    assert "--history 0 records nothing." in "".join(ended.said) + ended.err


def test_killed_program_makes_explain_partial(tmp_path: Path) -> None:
    source = "import os, time; time.sleep(0.7); os.kill(os.getpid(), 9)"
    assert record(tmp_path, "-c", source).code == 137
    explained = run_process([PYTHON, "-m", "memscope", "explain", "run.mscope"], tmp_path)
    assert explained.code == 3
    assert "partial" in explained.out
