"""The app over {nothing, one event, recorded, partial}, small and large, and hostile files."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from memscope.analysis.summary.summary import Summary, summarize
from memscope.analysis.timeline.read import read_timeline
from memscope.errors import MemscopeError
from memscope.events import Kind
from memscope.reader.recording import open_recording
from memscope.units import format_bytes, format_value
from memscope_dashboards.tui.app import LiveApp, SnapshotRead
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.run_feed import RunFeed, RunSnapshot
from memscope_dashboards.tui.screenshot import draw
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget
from tests.dashboards.tui.growing import GrowingFile, facts, recorded, step

SIZES = [(80, 24), (160, 45)]
Live = Pilot[MemscopeError | None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.mscope"


@contextlib.asynccontextmanager
async def live(path: Path, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Live]:
    app = LiveApp(RunFeed(path), period_s=0.05)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.snapshot is not None)
        yield pilot


async def until(pilot: Live, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come:\n" + screen_text(pilot)
        await pilot.pause(0.02)
    await pilot.pause()


def screen_text(pilot: Live) -> str:
    """What the widgets on the screen draw, row by row."""
    rows = []
    for widget in pilot.app.screen.query(LinesWidget):
        if widget.is_on_screen:
            rows += [widget.render_line(y).text for y in range(widget.size.height)]
    return "\n".join(rows)


def shown_batch(pilot: Live) -> int:
    assert isinstance(pilot.app, LiveApp)
    snapshot = pilot.app.snapshot
    return snapshot.summary.batches if snapshot and snapshot.summary else -1


@pytest.mark.parametrize("size", SIZES)
async def test_no_file_says_what_it_waits_for(path: Path, size: tuple[int, int]) -> None:
    async with live(path, size) as pilot:
        await until(pilot, lambda: "memscope run -o" in screen_text(pilot))
        text = screen_text(pilot)
        assert "waiting" in text
        assert "does not exist yet" in " ".join(text.split())


@pytest.mark.parametrize("size", SIZES)
async def test_one_event_shows_no_zero_for_what_was_not_measured(
    path: Path, size: tuple[int, int]
) -> None:
    file = GrowingFile(path)
    file.append(facts()[:1])
    async with live(path, size) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        text = screen_text(pilot)
        assert "no step has ended" in text
        assert "not measured" in text
        assert "no layer has run yet" in text
        assert " 0 B" not in text


@pytest.mark.parametrize("size", SIZES)
async def test_a_recording_shows_what_ran_and_how(path: Path, size: tuple[int, int]) -> None:
    recorded(path)
    async with live(path, size) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 5)
        text = screen_text(pilot)
        for words in ("complete", "batch 5", "tiny", "past, keep 2", "slab", "last step 3"):
            assert words in text
        assert "host device" in text
        assert "GPU" not in text.replace("serves GPUs", "")


COUNTERS = {
    "step time": "step.duration_ms",
    "uploads a step": "residency.uploads_per_step",
    "entries at end": "residency.entries_at_step_end",
    "peak entries": "residency.peak_entries",
    "pool hit rate": "pool.hit_rate",
    "driver calls a step": "driver.calls_per_step",
}


@pytest.mark.parametrize("size", SIZES)
async def test_metrics_on_screen_are_those_of_the_summary_at_its_batch(
    path: Path, tmp_path: Path, size: tuple[int, int]
) -> None:
    file = GrowingFile(path)
    async with live(path, size) as pilot:
        for number, rows in enumerate((facts(), step(0), step(1), step(2, uploads=4)), 1):
            file.append(rows)
            await until(pilot, lambda count=number: shown_batch(pilot) == count)
            expected = summary_at(path, number)
            text = " ".join(screen_text(pilot).split())
            assert f"batch {number}" in text
            for label, name in COUNTERS.items():
                assert f"{label} {written(expected, name)}" in text
            assert f"█ resident {written(expected, 'residency.resident_bytes')}" in text
            assert f"idle {written(expected, 'pool.idle_bytes')}" in text
            assert (
                f"peak {written(expected, 'memory.peak_bytes')} of {format_bytes(1 << 24)}" in text
            )


def summary_at(path: Path, batch: int) -> Summary:
    with open_recording(path) as recording:
        return summarize(read_timeline(recording, at=f"batch:{batch}"), recording.state)


def written(summary: Summary, name: str) -> str:
    metric = summary.metrics[name]
    if metric.value is None:
        return "not measured" if metric.is_applicable else "not applicable"
    return format_value(metric.value, metric.unit)


@pytest.mark.parametrize("size", SIZES)
async def test_partial_is_said_loudly(path: Path, size: tuple[int, int]) -> None:
    file = GrowingFile(path)
    file.append(facts())
    file.append(step(0))
    file.drop()
    async with live(path, size) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 2)
        text = screen_text(pilot)
        assert "PARTIAL" in text
        assert " CUT " in text


async def test_a_file_that_appears_and_grows_is_followed(path: Path) -> None:
    async with live(path) as pilot:
        assert shown_batch(pilot) == -1
        file = GrowingFile(path)
        file.append(facts())
        await until(pilot, lambda: "running" in screen_text(pilot))
        file.append(step(0))
        await until(pilot, lambda: "last step 0" in screen_text(pilot))
        file.append(step(1))
        file.end()
        await until(pilot, lambda: "complete" in screen_text(pilot))
        assert "last step 1" in screen_text(pilot)


async def test_a_file_that_is_replaced_is_shown_from_its_start(path: Path) -> None:
    recorded(path, steps=6)
    async with live(path) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 7)
        path.unlink()
        recorded(path, steps=1)
        await until(pilot, lambda: shown_batch(pilot) == 2)
        assert "last step 0" in screen_text(pilot)
        assert "recording 2 of this path" in screen_text(pilot)


async def test_pause_holds_the_view_and_goes_on_with_the_newest(path: Path) -> None:
    file = GrowingFile(path)
    file.append(facts())
    async with live(path) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        await pilot.press("p")
        await until(pilot, lambda: "paused" in screen_text(pilot))
        file.append(step(0))
        await pilot.pause(0.2)
        assert shown_batch(pilot) == 1
        await pilot.press("p")
        await until(pilot, lambda: shown_batch(pilot) == 2)
        assert "paused" not in screen_text(pilot)


NAMES = ["[red]x[/]", "\x1b[2J\x1b]0;x\x07", "m" * 1_000_000, "[/]", "日本"]


@pytest.mark.parametrize(
    ("size", "name"),
    list(zip(SIZES * 3, NAMES, strict=False)),
    ids=["markup", "escapes", "a megabyte", "closing tag", "wide"],
)
async def test_hostile_names_stay_text(path: Path, size: tuple[int, int], name: str) -> None:
    file = GrowingFile(path)
    file.append(facts(name=name, device=name))
    rows = step(0)
    rows[-2]["name"] = f"{name[:4000]}_bytes"
    file.append(rows)
    async with live(path, size) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 2)
        text = screen_text(pilot)
        assert "\x1b" not in text
        assert "\x07" not in text
        if len(name) < 10 and name.isprintable():
            assert name in text
        await pilot.press("v")
        await until(pilot, lambda: "Metrics" in screen_text(pilot))


async def test_other_files_of_facts_of_any_shape_are_shown(path: Path) -> None:
    file = GrowingFile(path)
    rows = facts()
    for row, data in zip(rows, (3, [1], "x", None, {"a": 1}), strict=True):
        row["data"] = data
    file.append([*rows, *step(0)])
    async with live(path) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        assert "last step 0" in screen_text(pilot)


async def test_a_bar_that_would_be_empty_ends_at_the_peak_and_says_so(path: Path) -> None:
    file = GrowingFile(path)
    rows = facts()
    rows[0]["data"]["limit_bytes"] = 1 << 40
    file.append([*rows, *step(0)])
    async with live(path) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        text = screen_text(pilot)
        assert "up to the peak" in text
        assert "████" in text


async def test_out_of_memory_stands_at_the_top(path: Path) -> None:
    file = GrowingFile(path)
    oom = {"kind": Kind.OOM, "t_ns": 1, "step": 1, "bytes": 5 << 20}
    file.append([*facts(), *step(0), oom | {"data": {"scope": "engine", "free": 1 << 20}}])
    async with live(path) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        rows = screen_text(pilot).splitlines()
        assert rows[2].startswith(" Out of memory in step 1: 5.00 MiB requested, 1.00 MiB free.")


@pytest.mark.parametrize("screen", ["", "v", "question_mark"])
async def test_control_c_leaves_every_screen(path: Path, screen: str) -> None:
    recorded(path)
    async with live(path) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 5)
        if screen:
            await pilot.press(screen)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not pilot.app.is_running)


async def test_all_metrics_and_help_open_and_close(path: Path) -> None:
    recorded(path)
    async with live(path) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 5)
        await pilot.press("question_mark")
        await until(pilot, lambda: type(pilot.app.screen).__name__ == "HelpScreen")
        await pilot.press("escape")
        await pilot.press("v")
        await until(pilot, lambda: "Metrics" in screen_text(pilot))
        assert "layers uploaded in a step" in screen_text(pilot)
        assert "Esc back" in screen_text(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: "Over time" in screen_text(pilot))


@pytest.mark.parametrize("size", [(20, 6), (40, 12), (80, 24), (119, 60), (400, 100)])
async def test_every_size_is_drawn(path: Path, size: tuple[int, int]) -> None:
    recorded(path)
    async with live(path, size) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 5)
        assert "complete" in screen_text(pilot) or size[0] < 40


async def test_without_colour_nothing_is_coloured(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    recorded(path)
    async with live(path) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 5)
        for strip in pilot.app.screen._compositor.render_strips():
            for segment in strip:
                color = segment.style.color if segment.style else None
                if color is not None and color.triplet is not None:
                    assert len(set(color.triplet)) == 1, segment


async def test_a_fault_in_the_feed_ends_the_view_with_one_sentence(path: Path) -> None:
    class BrokenFeed(RunFeed):
        def poll(self) -> RunSnapshot:
            raise RuntimeError("boom")

    app = LiveApp(BrokenFeed(path), period_s=0.02)
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value is not None
    assert "boom" in app.return_value.problem


def test_a_newer_snapshot_replaces_one_that_waits(path: Path) -> None:
    first, second = (
        SnapshotRead(RunSnapshot(Snapshot(path))),
        SnapshotRead(RunSnapshot(Snapshot(path))),
    )
    assert second.can_replace(first)


def test_a_picture_holds_what_is_on_the_screen(path: Path) -> None:
    svg = draw(recorded(path))
    assert svg.startswith("<svg")
    assert "Verdicts" in svg
