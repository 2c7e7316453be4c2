"""The feed: what it has read equals what the finished file says, whatever happens to the file."""

from __future__ import annotations

import os
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from memscope.analysis.summary.summary import summarize
from memscope.analysis.timeline.read import read_timeline
from memscope.events import Kind
from memscope.reader.recording import open_recording
from memscope.recorder.rows import make_row
from memscope.recorder.segments import Segments
from memscope_dashboards.tui.feed import Feed, Snapshot
from tests.dashboards.tui.growing import MS, GrowingFile, facts, recorded, step


class FakeClock:
    """Nanoseconds that pass when told to, and ``tick`` at each look."""

    def __init__(self, now: int = 0, tick: int = 0) -> None:
        self.now = now
        self.tick = tick

    def __call__(self) -> int:
        self.now += self.tick
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.mscope"


def batches(snapshot: Snapshot) -> int:
    assert snapshot.summary is not None
    return snapshot.summary.batches


def test_waits_for_a_file_that_appears_later(path: Path) -> None:
    feed = Feed(path)
    before = feed.poll()
    assert before.summary is None
    assert before.problem == f"{path} does not exist yet."
    recorded(path)
    after = feed.poll()
    assert after.problem is None
    assert batches(after) == 5


def test_waits_while_the_file_is_empty(path: Path) -> None:
    path.touch()
    assert Feed(path).poll().problem == f"{path} is still empty."


def test_every_batch_gives_the_summary_at_that_batch(path: Path) -> None:
    file, feed = GrowingFile(path), Feed(path)
    seen = []
    for rows in (facts(), step(0), step(1), step(2, uploads=3), step(3)):
        file.append(rows)
        seen.append(feed.poll().summary)
    file.end()
    with open_recording(path) as recording:
        for number, live in enumerate(seen, 1):
            assert live is not None
            after = summarize(read_timeline(recording, at=f"batch:{number}"), live.state)
            assert live.to_json() == after.to_json()


def test_a_half_written_batch_is_read_once_it_is_whole(path: Path, tmp_path: Path) -> None:
    whole = recorded(tmp_path / "whole").read_bytes()
    feed = Feed(path)
    counts = []
    for cut in (len(whole) // 2, len(whole) - 9, len(whole)):
        with path.open("ab") as file:
            file.write(whole[path.stat().st_size : cut])
        counts.append(batches(feed.poll()))
    assert counts[0] < counts[1] <= counts[2] == 5


def test_attaches_to_the_file_that_takes_its_place(path: Path) -> None:
    recorded(path, steps=6)
    feed = Feed(path)
    assert batches(feed.poll()) == 7
    path.unlink()
    recorded(path, steps=1)
    after = feed.poll()
    assert (batches(after), after.attachments) == (2, 2)
    assert after.steps is not None
    assert after.steps.step.tolist() == [0]


def test_goes_on_with_the_next_segments_of_the_same_recording(path: Path) -> None:
    segments, feed, written = Segments(path, 1 << 18, 0), Feed(path), 0
    counts = []
    for number in range(60):
        rows = [
            make_row(Kind.UPLOAD, os.urandom(400).hex(), None, t_ns=number, step=number)
            for _ in range(20)
        ]
        segments.write([*rows, make_row(Kind.STEP, None, None, t_ns=number, step=number)])
        written += 21
        segments.tidy()
        if number % 3 == 0:
            snapshot = feed.poll()
            assert snapshot.summary is not None
            assert (snapshot.problem, snapshot.attachments) == (None, 1)
            counts.append((snapshot.summary.events, snapshot.summary.steps))
            assert counts[-1] == (written, number + 1)
    assert segments.removed.segments, "segments that the feed had seen are gone by now"
    late = Feed(path).poll().summary
    assert late is not None
    with open_recording(path) as recording:
        after = summarize(read_timeline(recording), recording.state)
    assert late.to_json() == after.to_json()
    assert late.state.removed_rows > 0


def test_keeps_what_it_read_where_the_file_is_removed(path: Path) -> None:
    recorded(path)
    feed = Feed(path)
    feed.poll()
    path.unlink()
    after = feed.poll()
    assert batches(after) == 5
    assert after.problem == f"{path} was removed. The view shows what was in it."


def test_says_so_where_something_else_takes_its_place(path: Path) -> None:
    recorded(path)
    feed = Feed(path)
    feed.poll()
    path.unlink()
    path.write_text("no recording")
    after = feed.poll()
    assert batches(after) == 5
    assert after.problem is not None
    assert "is not a memscope recording" in after.problem


@pytest.mark.parametrize(("close", "state"), [("end", "complete"), ("drop", "cut")])
def test_names_the_state_of_the_file(path: Path, close: str, state: str) -> None:
    file, feed = GrowingFile(path), Feed(path)
    file.append(facts())
    running = feed.poll().summary
    getattr(file, close)()
    ended = feed.poll().summary
    assert running is not None
    assert ended is not None
    assert (running.state.name, ended.state.name) == ("running", state)


def test_damage_is_named_and_what_follows_it_is_read(path: Path) -> None:
    file = GrowingFile(path)
    file.append(facts())
    file.write(b"\x00garbage" * 9)
    file.append(step(0))
    file.end()
    summary = Feed(path).poll().summary
    assert summary is not None
    assert (summary.state.name, summary.batches) == ("damaged", 2)


def test_age_is_by_the_clock_since_the_newest_event(path: Path) -> None:
    clock = FakeClock()
    file = GrowingFile(path, started_at_ns=1_000 * MS)
    file.append(step(0))
    feed = Feed(path, clock_ns=clock)
    clock.now = 4_000 * MS
    first = feed.poll()
    clock.now += 500 * MS
    second = feed.poll()
    assert first.age_s == pytest.approx(3.0 - first.last_ns / 1e9)
    assert second.age_s == pytest.approx(first.age_s + 0.5)
    assert second.summary is first.summary  # nothing new: nothing folded again


def test_a_clock_that_lags_gives_no_negative_age(path: Path) -> None:
    file = GrowingFile(path, started_at_ns=10**18)
    file.append(step(0))
    assert Feed(path, clock_ns=FakeClock(1)).poll().age_s == 0.0


def test_a_long_file_is_read_in_portions(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memscope_dashboards.tui.feed.READ_BYTES", 1 << 14)
    recorded(path, steps=40)
    feed = Feed(path, clock_ns=FakeClock(tick=1 << 40))
    polls = [feed.poll()]
    while polls[-1].is_catching_up:
        polls.append(feed.poll())
    assert len(polls) > 2
    assert [batches(poll) for poll in polls] == sorted(batches(poll) for poll in polls)
    assert batches(polls[-1]) == 41


def test_several_viewers_see_the_same(path: Path) -> None:
    file, feeds = GrowingFile(path), [Feed(path) for _ in range(3)]
    for rows in (facts(), step(0), step(1)):
        file.append(rows)
        seen = [feed.poll().summary for feed in feeds]
        assert seen[0] == seen[1] == seen[2]


def test_the_warmup_that_was_asked_for_counts(path: Path) -> None:
    recorded(path, steps=4)
    durations = []
    for warmup in (0, 3):
        summary = Feed(path, warmup_steps=warmup).poll().summary
        assert summary is not None
        durations.append(summary.metrics["step.duration_ms"].value)
    assert durations == [11.5, 13.0]


def test_memory_stays_flat_while_a_file_grows(path: Path) -> None:
    file, feed = GrowingFile(path), Feed(path)
    file.append(facts())
    long_steps = [step(number)[:-1] * 40 + step(number)[-1:] for number in range(45)]
    for rows in long_steps[:5]:
        file.append(rows)
    feed.poll()
    tracemalloc.start()
    for rows in long_steps[5:]:
        file.append(rows)
        feed.poll()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    count = sum(map(len, long_steps[5:]))
    assert count > 40_000
    assert grown < 1_000_000, f"{grown:,} bytes more after {count:,} events"


def test_follow_publishes_until_it_is_stopped(path: Path) -> None:
    recorded(path)
    seen: list[Snapshot] = []
    stop = threading.Event()
    thread = threading.Thread(
        target=Feed(path).follow, args=(seen.append, stop), kwargs={"period_s": 0.01}
    )
    thread.start()
    deadline = time.monotonic() + 60
    while len(seen) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert len(seen) >= 3
    assert batches(seen[-1]) == 5
