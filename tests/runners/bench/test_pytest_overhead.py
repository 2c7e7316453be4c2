"""The bench of the pytest plugin: what it reports, on a few tests."""

from __future__ import annotations

import itertools
import json

import pytest

from memscope.errors import MemscopeError
from memscope_runners.bench import pytest_overhead


@pytest.mark.slow
def test_three_runs_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which the first run takes 1 s, and each 4 s longer than the one before it."""
    squares = (float(number**2) for number in itertools.count())
    monkeypatch.setattr(pytest_overhead, "perf_counter", lambda: next(squares))
    turns = []
    found = pytest_overhead.measure(rounds=1, tests=3, progress=lambda *turn: turns.append(turn))
    result = json.loads(json.dumps(found.to_json()))
    assert turns == [("rounds", 0, 1), ("rounds", 1, 1)]
    assert result["tests"] == 3
    assert result["without_s"]["count"] == result["marked_ms_per_test"]["count"] == 1
    assert result["limits"] == {"idle_ratio": 1.02, "marked_ms_per_test": 20}
    assert (found.without_s.value, found.idle_s.value) == (13, 17)
    assert found.idle_ratio.value == pytest.approx(17 / 13)
    assert found.marked_ms_per_test.value == pytest.approx((21 - 17) * 1e3 / 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "text", "reason"),
    [
        ("_BODY", "def test_trivial(number):\n    assert 0\n", "assert 0"),
        ("_MARK", "@pytest.mark.memscope('host.rss_bytes.peak <= 1 B')\n", "limit <= 1 B"),
    ],
)
def test_failing_runs_are_no_measurement(
    monkeypatch: pytest.MonkeyPatch, part: str, text: str, reason: str
) -> None:
    monkeypatch.setattr(pytest_overhead, part, text)
    with pytest.raises(MemscopeError, match=f"(?s)pytest did not pass.*{reason}"):
        pytest_overhead.measure(rounds=1, tests=1, progress=lambda *_: None)
