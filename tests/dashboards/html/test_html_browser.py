"""The page in a real browser, from a file and without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.dashboards.html.small_runs import HOSTILE, record_run

pytest.importorskip("plotly")

from memscope.cli.report import write_report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,2400",
    "--virtual-time-budget=20000",
)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH")


def dump_dom(page: Path, profile: Path, *options: str) -> tuple[str, str]:
    """The page's elements after its scripts ran, and what the browser logged."""
    assert BROWSER is not None
    command = [
        BROWSER,
        *OPTIONS,
        f"--user-data-dir={profile}",
        "--enable-logging=stderr",
        *options,
        "--dump-dom",
        page.as_uri(),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    return run.stdout, run.stderr


def test_charts_draw_from_a_file_with_hostile_names(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_report(record_run(tmp_path / "run.mscope", name=HOSTILE), page)
    dom, log = dump_dom(page, tmp_path / "profile")
    assert '<html lang="en" data-charts="drawn">' in dom
    drawn = {
        "memory": 'class="js-line"',
        "residency": 'xlink:href="data:image/png',
        "work": 'class="point"',
        "durations": 'class="point"',
    }
    parts = re.split(r'<div class="chart">', dom)[1:]
    assert len(parts) == len(drawn)
    for (key, mark), part in zip(drawn.items(), parts, strict=True):
        assert f'id="plot-{key}"' in part
        assert mark in part, key
    assert "CONSOLE" not in log


def test_browser_that_cannot_unpack_says_so(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_report(record_run(tmp_path / "run.mscope"), page)
    text = page.read_text(encoding="utf-8")
    packed = re.search(r'id="plotly-gzip">(.*?)</script>', text, re.S)
    assert packed
    page.write_text(text.replace(packed[1], packed[1][:1000]), encoding="utf-8")
    dom, _ = dump_dom(page, tmp_path / "profile")
    assert "The charts could not be drawn" in dom
    assert 'data-charts="drawn"' not in dom
