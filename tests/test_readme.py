"""What the README says is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memscope.cli import main
from memscope.cli.verbs import VERBS
from tests.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def python_example(containing: str) -> str:
    """The README's Python example with that text in it."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    (example,) = (block for block in blocks if containing in block)
    return example


def test_verbs_are_those_that_there_are() -> None:
    table = README.partition("## How to go on")[2].partition("### ")[0]
    listed = re.findall(r"^\| `([a-z]+)` \|", table, flags=re.M)
    used = re.findall(r"^\$ memscope ([a-z]+)", README, flags=re.M)
    assert set(listed) == set(VERBS)
    assert set(used) <= set(VERBS)


def test_pictures_and_links_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_keys_of_json_are_those_of_a_summary(tmp_path: Path) -> None:
    from memscope.analysis.summary.summary import summarize
    from memscope.analysis.timeline.timeline import read_timeline
    from memscope.reader.recording import open_recording
    from memscope.recorder.recorder import Recorder

    Recorder(tmp_path / "run.mscope").close()
    with open_recording(tmp_path / "run.mscope") as recording:
        keys = summarize(read_timeline(recording), recording.state).to_json().keys()
    table = README.partition("## JSON")[2].partition("`decode --json`")[0]
    listed = [key for row in re.findall(r"^\| (`.*?) \|", table, flags=re.M) for key in names(row)]
    assert sorted(listed) == sorted(keys)


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_recording_example_runs(tmp_path: Path) -> None:
    example = python_example("memscope.record(")
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
    example = python_example("pytest.mark.memscope(")
    (tmp_path / "test_kept.py").write_text(example + python_example("(memscope_measurement)"))
    (tmp_path / "test_broken.py").write_text(example.replace("<= 26", "<= 25"))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env=os.environ | {"MEMSCOPE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    shown = README.partition("With `<= 25` it says")[2].split("```")[1].splitlines()[1:]
    for line in shown[:6]:
        assert line in run.stdout.splitlines()
    assert shown[-1].replace("PATH", str(tmp_path)) in run.stdout
    assert "1 failed, 2 passed" in run.stdout


def test_explanation_at_the_top_is_what_explain_says(capsys: pytest.CaptureFixture[str]) -> None:
    shown = README.partition("memscope explain -\n")[2].partition("\n[...]")[0]
    log = ROOT / "tests" / "data" / "oom" / "06-edge-fragmentation.txt"
    assert main(["explain", str(log)]) == 0
    assert capsys.readouterr().out.startswith(shown)
