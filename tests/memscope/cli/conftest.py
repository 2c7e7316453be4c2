from __future__ import annotations

from pathlib import Path

import pytest

from memscope.cli import main
from tests.memscope.analysis.sweeps import run_sweeps
from tests.memscope.cli.recordings import write_recording
from tests.memscope.cli.verb_run import Outcome, Run


@pytest.fixture
def memscope(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*argv: object) -> Outcome:
        capsys.readouterr()
        code = main([str(word) for word in argv])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A complete recording of a window that keeps 4 of 12 layers."""
    return write_recording(tmp_path / "whole.mscope", run_sweeps("past", 12, 4))


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """The same, without its end."""
    rows = run_sweeps("past", 12, 4)
    return write_recording(tmp_path / "cut.mscope", rows, is_complete=False)
