"""Several processes of one run: found while they come and go, the holder shown until told else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_live_app import live, screen_text, until

from memscope.analysis.ledger.ledger import Ledger
from memscope.events import Kind
from memscope.units import format_bytes
from memscope_dashboards.tui.run_feed import RunFeed, RunSnapshot
from memscope_dashboards.tui.styled_line import length
from memscope_dashboards.tui.widgets.ledger_widget import LedgerWidget
from memscope_dashboards.tui.widgets.processes import window
from tests.dashboards.tui.growing import GrowingFile

GIB, MIB = 1 << 30, 1 << 20


def begin(folder: Path, pid: int, name: str = "") -> GrowingFile:
    path = folder / (name or f"run.{pid}.mscope")
    return GrowingFile(path, run_id="a", pid=pid, started_at_ns=pid, command=["serve.py"])


def hold(file: GrowingFile, size: int, *, device: int = 0) -> None:
    """A batch in which the process holds ``size`` of a card of 80 GiB."""
    gpu = {"name": "H200", "kind": "cuda", "total_bytes": 80 * GIB, "limit_bytes": 80 * GIB}
    readings = {
        "torch.reserved_bytes": size,
        "torch.allocated_bytes": size // 2,
        "torch.active_bytes": size // 2,
        "nvml.total_bytes": 80 * GIB,
        "nvml.driver_reserved_bytes": 600 * MIB,
        "nvml.used_bytes": size + GIB,
        "nvml.free_bytes": 79 * GIB - size - 600 * MIB,
        "nvml.process_bytes": size + 500 * MIB,
    }
    rows: list[dict[str, Any]] = [
        {"kind": Kind.FACT, "t_ns": 0, "name": f"cuda.{device}", "data": gpu},
        *(
            {"kind": Kind.SAMPLE, "t_ns": at, "name": name, "bytes": bytes_, "device": device}
            for at, (name, bytes_) in enumerate(readings.items())
        ),
    ]
    file.append(rows)


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A parent without a GPU and two children with 1 and 2 GiB; its path."""
    begin(tmp_path, 100, "run.mscope").append([{"kind": Kind.MARK, "t_ns": 0, "name": "up"}])
    for pid, size in ((200, GIB), (300, 2 * GIB)):
        hold(begin(tmp_path, pid), size)
    return tmp_path / "run.mscope"


def shown_pid(found: RunSnapshot) -> int | None:
    return found.run.processes[found.shown].pid if found.run and found.shown is not None else None


def test_holder_is_shown_where_the_first_process_holds_nothing(server: Path) -> None:
    feed = RunFeed(server)
    found = [feed.poll() for _ in range(5)][-1]
    assert shown_pid(found) == 300
    assert found.run is not None
    assert [process.pid for process in found.run.processes] == [100, 200, 300]
    assert found.run.holder is not None
    feed.close()


def test_launcher_gives_way_to_a_rank_with_steps(tmp_path: Path) -> None:
    rss = {"kind": Kind.SAMPLE, "name": "host.rss_bytes"}
    launcher = begin(tmp_path, 100, "run.mscope")
    launcher.append([{**rss, "t_ns": 1, "bytes": 40 * GIB}])
    feed = RunFeed(tmp_path / "run.mscope")
    assert [shown_pid(feed.poll()) for _ in range(3)] == [100] * 3
    rank = begin(tmp_path, 200)
    source = {"kind": Kind.FACT, "t_ns": 1, "name": "run.step_source", "data": "optimizer"}
    step = {"kind": Kind.STEP, "t_ns": 2, "step": 0, "duration_ns": 1}
    rank.append([source, {**rss, "t_ns": 1, "bytes": GIB}, step])
    assert [shown_pid(feed.poll()) for _ in range(4)][-1] == 200
    feed.move(1)
    assert [shown_pid(feed.poll()) for _ in range(4)] == [100] * 4, "as told"
    feed.close()


def test_a_process_that_grows_far_beyond_the_shown_one_takes_its_place(tmp_path: Path) -> None:
    first, second = begin(tmp_path, 200, "run.mscope"), begin(tmp_path, 300)
    hold(first, 20 * GIB)
    hold(second, 18 * GIB)
    feed = RunFeed(tmp_path / "run.mscope")
    assert [shown_pid(feed.poll()) for _ in range(5)][-1] == 200
    hold(second, 21 * GIB)
    assert {shown_pid(feed.poll()) for _ in range(5)} == {200}, "alike: the view stays"
    hold(second, 40 * GIB)
    assert [shown_pid(feed.poll()) for _ in range(5)][-1] == 300
    feed.close()


async def test_sums_over_devices_and_metrics_of_one_say_which_they_are(tmp_path: Path) -> None:
    file = begin(tmp_path, 200, "run.mscope")
    hold(file, GIB)
    hold(file, 2 * GIB, device=1)
    async with live(tmp_path / "run.mscope", (120, 45)) as pilot:
        await until(pilot, lambda: "reserved now, all GPUs" in screen_text(pilot))
        rows = [row.split() for row in screen_text(pilot).splitlines()]
        assert any(" ".join(row).endswith("reserved now, all GPUs 3.00 GiB") for row in rows)
        assert any("limit, cuda:1" in " ".join(row) for row in rows)
        assert any("memory.peak_ratio < 1 2.5% (cuda:1)" in " ".join(row) for row in rows)
        await pilot.press("v")
        await until(pilot, lambda: "(cuda:1, the highest of 2" in screen_text(pilot))


def test_moving_goes_round_and_stays(server: Path) -> None:
    feed = RunFeed(server)
    for _ in range(4):
        feed.poll()
    for expected in (100, 200, 300):
        feed.move(1)
        assert [shown_pid(feed.poll()) for _ in range(3)] == [expected] * 3
    feed.move(-2)
    assert shown_pid(feed.poll()) == 100
    feed.close()


@pytest.mark.parametrize("argument", ["run.mscope", ".", "run*.mscope"])
def test_child_that_appears_is_found(tmp_path: Path, argument: str) -> None:
    begin(tmp_path, 100, "run.mscope")
    feed = RunFeed(tmp_path / argument)
    assert shown_pid(feed.poll()) == 100
    hold(begin(tmp_path, 200), GIB)
    assert [shown_pid(feed.poll()) for _ in range(4)][-1] == 200
    feed.close()


async def test_a_file_of_the_run_that_cannot_be_read_makes_it_partial(tmp_path: Path) -> None:
    file = begin(tmp_path, 100, "run.mscope")
    hold(file, GIB)
    child = begin(tmp_path, 200)
    child.drop()
    async with live(tmp_path / "run.mscope", (120, 45)) as pilot:
        await until(pilot, lambda: "running" in screen_text(pilot))
        assert "PARTIAL" not in screen_text(pilot)
        child.path.write_bytes(child.path.read_bytes()[:60])
        await until(pilot, lambda: "PARTIAL" in screen_text(pilot))
        shown = " ".join(screen_text(pilot).split())
        assert "1 file of this run has no readable header (run.200.mscope)" in shown
        assert "● running" in shown


def test_folder_without_a_recording_waits_for_one(tmp_path: Path) -> None:
    feed = RunFeed(tmp_path)
    assert "holds no recording" in (feed.poll().snapshot.problem or "")
    begin(tmp_path, 100, "run.mscope")
    assert shown_pid(feed.poll()) == 100
    feed.close()


def test_newer_run_in_the_folder_takes_the_view(tmp_path: Path) -> None:
    begin(tmp_path, 100, "run.mscope")
    feed = RunFeed(tmp_path)
    feed.poll()
    GrowingFile(tmp_path / "next.mscope", run_id="b", pid=900, started_at_ns=900)
    assert shown_pid(feed.poll()) == 900
    feed.close()


def test_removed_file_leaves_what_was_in_it(server: Path) -> None:
    feed = RunFeed(server.with_name("run.200.mscope"))
    feed.poll()
    server.with_name("run.200.mscope").unlink()
    found = feed.poll()
    assert "was removed" in (found.snapshot.problem or "")
    assert shown_pid(found) == 200
    feed.close()


async def test_keys_switch_the_process(server: Path) -> None:
    async with live(server) as pilot:
        await until(pilot, lambda: "▶300 2.49 GiB" in screen_text(pilot))
        text = screen_text(pilot)
        assert "torch reserved" in text
        assert "serve.py" in text
        assert "Layers" not in text
        assert "uploads" not in text
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "▶200" in screen_text(pilot))
        assert "2 of 3" in screen_text(pilot)
        await pilot.press("right_square_bracket", "right_square_bracket")
        await until(pilot, lambda: "▶100 no GPU" in screen_text(pilot))


async def test_a_gpu_that_was_not_read_is_not_called_none(server: Path) -> None:
    """The third process has a card, of which nothing was read."""
    gpu = {"name": "H200", "kind": "cuda", "total_bytes": 80 * GIB}
    file = begin(server.parent, 400)
    file.append([{"kind": Kind.FACT, "t_ns": 0, "name": "cuda.0", "data": gpu}])
    async with live(server, (120, 24)) as pilot:
        await until(pilot, lambda: "400 not measured" in screen_text(pilot))
        assert "100 no GPU" in screen_text(pilot)


async def test_ledger_on_screen_is_that_of_the_summary(server: Path) -> None:
    async with live(server, (120, 40)) as pilot:
        await until(pilot, lambda: "▶300" in screen_text(pilot))
        assert "Child process 300 held the most" in screen_text(pilot)
        await pilot.press("m")
        await until(pilot, lambda: "not measurable" in screen_text(pilot))
        lines = screen_text(pilot).splitlines()
        (ledger,) = ledgers(pilot.app)
        for _, line in ledger.lines:
            if line.bytes:
                row = next(row for row in lines if row.strip().startswith(f"{line.words} "))
                assert format_bytes(line.bytes) in row
        assert any("not measurable: weights, gradients" in row for row in lines)
        await pilot.press("m")
        await until(pilot, lambda: "Over time" in screen_text(pilot))


@pytest.mark.parametrize("width", [10, 30, 60, 200])
def test_ledger_fits_every_width(server: Path, width: int) -> None:
    feed = RunFeed(server)
    snapshot = [feed.poll() for _ in range(4)][-1].snapshot
    feed.close()
    widget = LedgerWidget()
    lines = widget.compose_lines(snapshot, width, 0)
    assert all(length(line) <= width for line in lines) or width < 30
    widget.most_rows = 4
    words = ["".join(text for text, _ in line) for line in widget.compose_lines(snapshot, 80, 0)]
    assert [line.split()[0] for line in words] == ["Device", "device", "free", "used", "this"]


def ledgers(app: Any) -> tuple[Ledger, ...]:
    summary = app.snapshot.summary if app.snapshot else None
    return summary.ledgers if summary is not None else ()


@pytest.mark.parametrize(
    ("shown", "room", "expected"),
    [(0, 100, (0, 4)), (3, 100, (0, 4)), (1, 24, (1, 3)), (3, 24, (2, 4)), (2, 5, (2, 3))],
)
def test_line_holds_the_shown_process(shown: int, room: int, expected: tuple[int, int]) -> None:
    assert window([10, 10, 10, 10], shown, room) == expected
