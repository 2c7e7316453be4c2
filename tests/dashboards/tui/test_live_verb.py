"""`memscope live` where it cannot start: one sentence, the next step, exit 2."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from memscope.cli import live
from memscope.errors import MemscopeError
from tests.dashboards.tui.growing import GrowingFile, recorded


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(getattr(sys, name), "isatty", lambda: True, raising=False)


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    live.add_arguments(parser)
    return parser.parse_args(words)


def refusal(*words: str) -> MemscopeError:
    with pytest.raises(MemscopeError) as caught:
        live.run(arguments(*words))
    return caught.value


def test_without_a_terminal_it_names_summary(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run.mscope")
    assert refusal(str(path)).next_step == f"Use `memscope summary {path}` here."


WITHOUT_TEXTUAL = """
import sys
sys.modules["textual"] = None
for name in ("stdin", "stdout", "stderr"):
    getattr(sys, name).isatty = lambda: True
from memscope.cli import main
sys.exit(main(["live", "run.mscope"]))
"""


def test_without_textual_it_names_the_extra(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TEXTUAL]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'memscope-torch[dashboards]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("terminal")
def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no recording")
    assert "is not a memscope recording" in refusal(str(path)).problem


@pytest.mark.usefixtures("terminal")
def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "no"
    assert "does not exist" in refusal(str(folder / "run.mscope")).problem


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("kind", ["absent", "empty", "running", "complete"])
def test_what_is_or_will_be_a_recording_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = tmp_path / "run.mscope"
    if kind == "empty":
        path.touch()
    elif kind == "complete":
        recorded(path)
    file = GrowingFile(path) if kind == "running" else None
    asked = []

    def follow(path: Path, *, warmup_steps: int | None) -> int:
        asked.append((path, warmup_steps))
        return 0

    monkeypatch.setattr("memscope_dashboards.tui.app.follow", follow)
    assert live.run(arguments(str(path), "--warm-up", "3")) == 0
    assert asked == [(path, 3)]
    del file
