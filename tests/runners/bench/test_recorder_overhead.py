"""What recording costs is measured; how much it is, is for a quiet machine to say."""

from __future__ import annotations

import pytest

from memscope_runners.bench import recorder_overhead
from memscope_runners.bench.recorder_overhead import TURN_TOKENS, measure
from memscope_runners.q8.fetch import open_model
from memscope_runners.settings import Settings


def test_halves_take_turns_and_all_rows_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_overhead, "HALF_SECONDS", 0.01)
    monkeypatch.setattr(recorder_overhead, "IDLE_SECONDS", 0.2)
    seen: list[int] = []
    overhead = measure(
        open_model("synthetic:tiny"),
        Settings("past", 2),
        pairs=3,
        progress=lambda _, done, __: seen.append(done),
    )
    assert seen == [1, 2, 3]
    assert overhead.recorded_ratio.count == 3
    assert overhead.recorded_ratio.value > 0
    assert overhead.events_per_token * TURN_TOKENS * 3 > 100
    assert overhead.dropped_rows == 0
    assert overhead.emit_ns > overhead.guard_ns
