"""No test of the live view depends on how fast the machine is that it runs on."""

from __future__ import annotations

import math

import pytest

from memscope_dashboards.tui import feed, run_feed


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each poll looks for processes and reads all that is there, whatever a look took before."""
    monkeypatch.setattr(run_feed, "LOOK_S", 0.0)
    monkeypatch.setattr(run_feed, "LOOK_SHARE", math.inf)
    monkeypatch.setattr(feed, "BUDGET_NS", 1 << 39)
