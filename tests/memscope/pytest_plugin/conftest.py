"""pytest within pytest, with this plugin and as few others as a test needs."""

from __future__ import annotations

from pathlib import Path

import pytest

import memscope.analysis.ledger.ledger

# Loaded before pytest runs within pytest, which forgets what it imported itself.
import memscope.analysis.limits.baseline
import memscope.analysis.limits.limits
import memscope.analysis.limits.machine_class
import memscope.analysis.metrics.measure
import memscope.analysis.metrics.median
import memscope.analysis.timeline.read
import memscope.launch.record
import memscope.reader.recording
import memscope.recorder.recorder  # noqa: F401
from tests.memscope.pytest_plugin.program import PROGRAM, RunTests


@pytest.fixture(autouse=True)
def only_this_plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMSCOPE_DIR", str(tmp_path))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "memscope.pytest_plugin.plugin")


@pytest.fixture
def installed_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is installed instead, by its entry points."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    monkeypatch.delenv("PYTEST_PLUGINS")


@pytest.fixture
def run_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> RunTests:
    """Runs a file of tests after ``PROGRAM``, recordings going to the folder ``kept``."""
    kept = pytester.path / "kept"
    kept.mkdir()
    monkeypatch.setenv("MEMSCOPE_DIR", str(kept))
    pytester.makeini("[pytest]\naddopts = --strict-markers\n")

    def run(body: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=PROGRAM + body)
        return pytester.runpytest(*options)

    return run
