"""What the README says is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memscope.cli import main
from tests.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTEST = (ROOT / "docs" / "pytest.md").read_text(encoding="utf-8")
RECORDING = (ROOT / "docs" / "recording.md").read_text(encoding="utf-8")
MAX_WORDS = 1300


def python_example(containing: str, page: str = README) -> str:
    """The page's Python example with that text in it."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    (example,) = (block for block in blocks if containing in block)
    return example


def test_readme_can_be_read_in_one_sitting() -> None:
    assert len(README.split()) <= MAX_WORDS


def test_recording_example_runs(tmp_path: Path) -> None:
    example = python_example("memscope.record(", RECORDING)
    subprocess.run([sys.executable, "-c", example], cwd=tmp_path, check=True, timeout=300)
    assert (tmp_path / "run.mscope").exists()


@pytest.mark.slow
@pytest.mark.model
def test_marker_example_says_what_it_shows(tmp_path: Path) -> None:
    from memscope.errors import MemscopeError
    from memscope_runners.checkpoint.fetch import open_model

    try:
        open_model()
    except MemscopeError as error:
        pytest.skip(f"the real model cannot be had: {error}")
    example = python_example("from memscope_runners.decode", PYTEST)
    (tmp_path / "test_kept.py").write_text(
        example + python_example("(memscope_measurement)", PYTEST)
    )
    (tmp_path / "test_broken.py").write_text(example.replace("<= 26", "<= 25"))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env=os.environ | {"MEMSCOPE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    shown = PYTEST.partition("With `<= 25` it says")[2].split("```")[1].splitlines()[1:]
    for line in shown[:6]:
        assert line in run.stdout.splitlines()
    assert shown[-1].replace("PATH", str(tmp_path)) in run.stdout
    assert "1 failed, 2 passed" in run.stdout


def test_explanation_at_the_top_is_what_explain_says(capsys: pytest.CaptureFixture[str]) -> None:
    shown = README.partition("memscope explain examples/oom.log\n")[2].partition("\n[...]")[0]
    assert main(["explain", str(ROOT / "examples" / "oom.log")]) == 0
    assert capsys.readouterr().out.startswith(shown)


@pytest.mark.slow
def test_memory_test_says_what_it_shows(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("what is shown is of a machine without a GPU")
    (tmp_path / "test_memory.py").write_text(python_example("def test_gpu_memory"))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env=os.environ | {"MEMSCOPE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    shown = README.partition("ends with\n")[2].split("```")[1].splitlines()[1:]
    for line in shown:
        assert line == "[...]" or without_sizes(line) in without_sizes(run.stdout)
    assert "1 failed, 1 skipped" in run.stdout


def without_sizes(text: str) -> str:
    """``text`` without what differs from machine to machine."""
    return re.sub(r"[\d.]+ [MG]iB\b(?!  )", "SIZE", text)
