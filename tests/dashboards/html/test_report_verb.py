"""``memscope report``: where the page goes, and what goes wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from memscope.cli import main
from tests.dashboards.html.small_runs import cut, record_run

pytest.importorskip("plotly")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return record_run(tmp_path / "run.mscope")


def test_page_goes_into_the_output_folder_and_its_path_is_printed(
    recording: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    monkeypatch.setenv("MEMSCOPE_DIR", str(folder))
    assert main(["report", str(recording)]) == 0
    assert capsys.readouterr().out == f"{folder / 'run.html'}\n"
    assert [path.name for path in folder.iterdir()] == ["run.html"]


def test_existing_page_stays_without_force(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert main(["report", str(recording), "-o", str(page)]) == 2
    assert "--force" in capsys.readouterr().err
    assert page.read_text() == "mine"
    assert main(["report", str(recording), "-o", str(page), "--force"]) == 0
    assert page.read_text().startswith("<!doctype html>")


def test_partial_recording_exits_3(recording: Path, tmp_path: Path) -> None:
    assert main(["report", str(cut(recording)), "-o", str(tmp_path / "page.html")]) == 3


@pytest.mark.parametrize("output", ["missing/page.html", "."])
def test_page_that_cannot_be_written_is_one_sentence(
    output: str, recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.iterdir())
    assert main(["report", str(recording), "-o", str(tmp_path / output)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_no_recording_leaves_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "no.mscope"), "-o", str(page)]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert not page.exists()


def test_missing_plotly_names_the_command_that_installs_it(
    recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in list(sys.modules):
        if name.startswith(("plotly", "memscope_dashboards.html")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert main(["report", str(recording)]) == 2
    assert "pip install 'memscope-torch[dashboards]'" in capsys.readouterr().err


def test_warm_up_is_the_users(recording: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(recording), "-o", str(page), "--warm-up", "8"]) == 0
    assert "no step has ended after warm-up" in page.read_text().lower()
