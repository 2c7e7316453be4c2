"""One recording on every screen: the same verdicts, with their advice."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from memscope.analysis.limits.limits import Verdict
from memscope.analysis.summary.summary import summarize
from memscope.analysis.timeline.read import read_timeline
from memscope.cli import main
from memscope.reader.recording import open_recording
from tests.memscope.analysis.sweeps import run_sweeps
from tests.memscope.cli.recordings import write_recording


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A window that uploads more than it need: one default is broken."""
    return write_recording(tmp_path / "run.mscope", run_sweeps("past", 12, 4))


@pytest.fixture
def verdicts(path: Path) -> list[Verdict]:
    with open_recording(path) as recording:
        summary = summarize(read_timeline(recording), recording.state)
    found = [verdict for verdict in summary.verdicts if verdict.value is not None]
    assert {verdict.verdict for verdict in found} == {"pass", "fail"}
    assert all(verdict.advice for verdict in found if verdict.verdict == "fail")
    return found


def check_all(verdicts: list[Verdict], text: str) -> None:
    """Each limit and actual, and the advice of those that are broken, whatever the lines."""
    text = " ".join(text.split())
    for verdict in verdicts:
        assert verdict.limit in text
        assert verdict.actual in text
        assert verdict.advice in text


@pytest.mark.parametrize("verb", ["summary", "check"])
def test_on_the_command_line(
    verb: str, path: Path, verdicts: list[Verdict], capsys: pytest.CaptureFixture[str]
) -> None:
    main([verb, str(path)])
    check_all(verdicts, capsys.readouterr().out)


def test_in_the_report(path: Path, verdicts: list[Verdict]) -> None:
    pytest.importorskip("plotly")
    page = path.with_suffix(".html")
    assert main(["report", str(path), "-o", str(page)]) == 0
    check_all(verdicts, html.unescape(re.sub(r"<[^>]*>", " ", page.read_text())))


def test_in_the_live_view(path: Path, verdicts: list[Verdict]) -> None:
    pytest.importorskip("textual")
    from memscope_dashboards.tui.feed import Feed
    from memscope_dashboards.tui.widgets.verdicts import Verdicts

    lines = Verdicts().compose_lines(Feed(path).poll(), 100, 0)
    check_all(verdicts, "\n".join("".join(text for text, _ in line) for line in lines))
