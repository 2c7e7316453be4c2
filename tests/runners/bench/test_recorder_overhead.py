"""What recording costs is measured; how much it is, is for a quiet machine to say."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import pytest

from memscope.recorder.recorder import THREAD_NAME
from memscope_runners.bench import recorder_overhead
from memscope_runners.bench.recorder_overhead import (
    TURN_TOKENS,
    WARM_UP_TURNS,
    Halves,
    Walk,
    measure,
)
from memscope_runners.checkpoint.fetch import open_model
from memscope_runners.settings import Settings


@pytest.mark.slow
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


def writers() -> set[threading.Thread]:
    """The threads of recorders, those of other tests among them."""
    return {thread for thread in threading.enumerate() if thread.name == THREAD_NAME}


@pytest.mark.parametrize("failing", ["plain", "recorded"])
def test_a_turn_that_fails_leaves_no_thread_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: str
) -> None:
    """Nothing would end it: the program would never exit."""
    monkeypatch.setattr(recorder_overhead, "HALF_SECONDS", 0.01)
    halves = Halves(open_model("synthetic:tiny"), Settings("past", 2), tmp_path)
    is_failing = {"plain": lambda recorder: recorder is None, "recorded": bool}[failing]

    def fail(walk: Walk) -> int:
        if is_failing(walk._decoder._recorder) and next(turns) >= WARM_UP_TURNS:
            time.sleep(0.3)  # the recorder's thread looks at the clock meanwhile
            raise RuntimeError("no memory")
        return take_turn(walk)

    turns, take_turn, before = itertools.count(), Walk.take_turn, writers()
    monkeypatch.setattr(Walk, "take_turn", fail)
    with pytest.raises(RuntimeError, match="no memory"):
        halves.run(2, lambda *_: None)
    assert writers() <= before
