"""The bench of the pytest plugin: what it reports, on a few tests."""

from __future__ import annotations

import json

import pytest

from memscope.errors import MemscopeError
from memscope_runners.bench import pytest_overhead


def test_three_runs_take_turns() -> None:
    turns = []
    found = pytest_overhead.measure(rounds=2, tests=3, progress=lambda *turn: turns.append(turn))
    result = json.loads(json.dumps(found.to_json()))
    assert turns == [("rounds", 0, 2), ("rounds", 1, 2), ("rounds", 2, 2)]
    assert result["tests"] == 3
    assert result["without_s"]["count"] == result["marked_ms_per_test"]["count"] == 2
    assert result["limits"] == {"idle_ratio": 1.02, "marked_ms_per_test": 20}
    assert result["marked_ms_per_test"]["value"] > 0  # so the tests were measured


def test_failing_runs_are_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest_overhead, "_BODY", "def test_trivial(number):\n    assert 0\n")
    with pytest.raises(MemscopeError, match="pytest did not pass"):
        pytest_overhead.measure(rounds=1, tests=1, progress=lambda *_: None)
