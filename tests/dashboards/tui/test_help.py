"""The help of the live view speaks of what the program that is shown has, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_live_app import Live, live, screen_text, shown_batch, until
from test_plain_programs import trained
from textual.widgets import Static

from memscope.events import Kind
from tests.dashboards.tui.growing import GrowingFile, facts, step

OF_A_WINDOW = ("Layers", "resident", "in flight", "evicted", "weight pool", "uploaded")
OF_THE_LEDGER = "the largest parts of its memory"
OF_SEVERAL = "previous process"


def decoded(path: Path) -> Path:
    """A program with a window."""
    file = GrowingFile(path)
    file.append([*facts(), *step(0), *step(1)])
    file.end()
    return path


def words_of(pilot: Live) -> str:
    return str(pilot.app.screen.query_one(Static).render())


async def help_of(path: Path) -> str:
    async with live(path) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        await pilot.press("question_mark")
        await until(pilot, lambda: type(pilot.app.screen).__name__ == "HelpScreen")
        return words_of(pilot)


async def test_a_window_has_its_layers_explained(tmp_path: Path) -> None:
    text = await help_of(decoded(tmp_path / "run.mscope"))
    assert [words for words in OF_A_WINDOW if words not in text] == []
    assert OF_THE_LEDGER not in text


@pytest.mark.parametrize("devices", [0, 1])
async def test_other_programs_read_no_word_of_a_window(tmp_path: Path, devices: int) -> None:
    text = await help_of(trained(tmp_path / "run.mscope", devices=devices))
    assert [words for words in OF_A_WINDOW if words in text] == []
    assert (OF_THE_LEDGER in text) is (devices > 0)
    assert "does not apply to this run" in text
    assert OF_SEVERAL not in text


async def test_of_several_processes_it_says_how_to_go_on(tmp_path: Path) -> None:
    for pid in (100, 200):
        name = "run.mscope" if pid == 100 else f"run.{pid}.mscope"
        file = GrowingFile(tmp_path / name, run_id="a", pid=pid, started_at_ns=pid)
        file.append([{"kind": Kind.MARK, "t_ns": 0, "name": "up"}])
    async with live(tmp_path / "run.mscope") as pilot:
        await until(pilot, lambda: "1 of 2" in screen_text(pilot))
        await pilot.press("question_mark")
        await until(pilot, lambda: type(pilot.app.screen).__name__ == "HelpScreen")
        assert OF_SEVERAL in words_of(pilot)


async def test_of_nothing_yet_there_are_the_keys(tmp_path: Path) -> None:
    async with live(tmp_path / "run.mscope") as pilot:
        await pilot.press("question_mark")
        await until(pilot, lambda: type(pilot.app.screen).__name__ == "HelpScreen")
        assert "pause the view" in words_of(pilot)
        assert "Verdicts" not in words_of(pilot)
