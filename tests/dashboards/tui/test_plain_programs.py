"""The live view of programs without a window: what cannot be of them has no place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_live_app import live, screen_text, shown_batch, until

from memscope.events import Kind
from tests.dashboards.tui.growing import MS, SLAB, GrowingFile, facts, step

SIZES = [(80, 24), (120, 40)]
MIB, GIB = 1 << 20, 1 << 30
OF_A_WINDOW = ("Layers", "resident", "in flight", "idle", "uploads", "entries", "pool hit rate")


def sample(t_ns: int, name: str, size: int, **fields: Any) -> dict[str, Any]:
    return {"kind": Kind.SAMPLE, "t_ns": t_ns, "name": name, "bytes": size, **fields}


def trained(path: Path, *, devices: int = 0, source: str | None = None) -> Path:
    """Steps of a watched model, on the host or on GPUs; ``source``: of what they are made."""
    file = GrowingFile(path)
    gpu = {"name": "H200", "kind": "cuda", "total_bytes": 80 * GIB}
    rows: list[dict[str, Any]] = [
        {"kind": Kind.FACT, "t_ns": 0, "name": f"cuda.{device}", "data": gpu}
        for device in range(devices)
    ]
    if source is not None:
        rows.append({"kind": Kind.FACT, "t_ns": 0, "name": "run.step_source", "data": source})
        rows.append({"kind": Kind.FACT, "t_ns": 0, "name": "run.kind", "data": "program"})
    for number in range(4):
        at = number * 20 * MS
        for place in range(devices):
            size = (8 - place) * GIB
            rows.append(sample(at, "torch.allocated_bytes", size, device=place))
            rows.append(sample(at, "torch.reserved_bytes", size + GIB, device=place))
        rows.append(sample(at, "host.rss_bytes", 350 * MIB))
        rows.append(sample(at, "model.weights_bytes", 11 * MIB))
        rows.append(sample(at, "model.optimizer_bytes", 22 * MIB))
        end = {"kind": Kind.STEP, "t_ns": at + 9 * MS, "step": number, "duration_ns": 9 * MS}
        rows.append(end)
    file.append(rows)
    file.end()
    return path


@pytest.mark.parametrize("size", SIZES)
async def test_a_program_on_the_host_shows_what_it_has_alone(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with live(trained(tmp_path / "run.mscope"), size) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        text = " ".join(screen_text(pilot).split())
        above = text.partition("Verdicts")[0]
        for words in (*OF_A_WINDOW, "unused cache", "not applicable", "0 layers"):
            assert words not in above, words
        assert "Ledger" not in text
        for words in ("step time 9.00 ms", "host RSS now 350 MiB", "weights now 11.0 MiB"):
            assert words in above
        assert "optimizer state now 22.0 MiB" in above


@pytest.mark.parametrize("size", SIZES)
async def test_a_missing_reading_of_a_gpu_still_has_its_cell(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with live(trained(tmp_path / "run.mscope", devices=1), size) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        text = " ".join(screen_text(pilot).split())
        assert "swing within a step not measured" in text
        assert "Layers" not in text
        assert "reserved " in text


async def test_each_device_has_a_line_over_time(tmp_path: Path) -> None:
    async with live(trained(tmp_path / "run.mscope", devices=2), (80, 30)) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        rows = {row.strip()[:11]: row for row in screen_text(pilot).splitlines()}
        assert "9.00 GiB" in rows["reserved 0 "]
        assert "8.00 GiB" in rows["reserved 1 "]
        assert "allocated 1" in rows
        assert "Verdicts" in screen_text(pilot)


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_known_comes_before_one_line_of_what_no_gpu_leaves_out(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with live(trained(tmp_path / "run.mscope", source="optimizer"), size) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        text = " ".join(screen_text(pilot).split())
        _, _, verdicts = text.partition("Verdicts")
        assert "✓ 1 pass" in verdicts
        assert "not measured" not in verdicts
        assert verdicts.index("oom.engine_count") < verdicts.index("no GPU was recorded: 26 ")
        for name in ("memory.peak_ratio", "kv.peak_utilisation", "growth.allocated"):
            assert name not in text
        await pilot.press("v")
        await until(pilot, lambda: "Metrics" in screen_text(pilot))
        text = screen_text(pilot)
        assert text.index("host.peak_bytes") < text.index("memory.peak_bytes")


async def test_of_a_gpu_what_is_judged_stands_before_what_is_not(tmp_path: Path) -> None:
    async with live(trained(tmp_path / "run.mscope", devices=1), (120, 40)) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        text = screen_text(pilot).partition("Verdicts")[2]
        assert text.index("memory.peak_ratio") < text.index("driver.calls_per_step")
        assert "no driver call is recorded" in text
        assert "no GPU was recorded" not in text


@pytest.mark.parametrize("size", SIZES)
async def test_seconds_are_no_steps(tmp_path: Path, size: tuple[int, int]) -> None:
    async with live(trained(tmp_path / "run.mscope", source="second"), size) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        text = screen_text(pilot)
        assert "no steps of its own" in text
        assert "last step" not in text
        assert "ms per step" not in text


async def test_steps_of_the_program_alone_are_drawn(tmp_path: Path) -> None:
    file = GrowingFile(tmp_path / "run.mscope")
    rows: list[dict[str, Any]] = []
    for source, first, length in (("second", 0, 1000 * MS), ("optimizer", 2, 5 * MS)):
        fact = {"kind": Kind.FACT, "t_ns": first * 1000 * MS, "name": "run.step_source"}
        rows.append(fact | {"data": source})
        for number in (first, first + 1):
            end = {"kind": Kind.STEP, "t_ns": (number + 1) * 1000 * MS, "step": number}
            rows.append(end | {"duration_ns": length})
    file.append(rows)
    async with live(tmp_path / "run.mscope") as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        row = next(row for row in screen_text(pilot).splitlines() if "ms per step" in row)
        assert row.split()[-5:] == ["5.00", "ms", "peak", "5.00", "ms"]


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ((80, 24), "2 × H200"),
        ((140, 45), "2 × H200, peak 17.0 GiB on 2 GPUs, limit 80.0 GiB each"),
    ],
)
async def test_the_masthead_names_all_devices(
    tmp_path: Path, size: tuple[int, int], words: str
) -> None:
    async with live(trained(tmp_path / "run.mscope", devices=2), size) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        assert screen_text(pilot).splitlines()[1].rstrip().endswith(words)


async def test_many_devices_leave_room_for_steps_and_verdicts(tmp_path: Path) -> None:
    async with live(trained(tmp_path / "run.mscope", devices=8)) as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        text = screen_text(pilot)
        assert "… 6 more devices with m" in text
        assert "Verdicts" in text


async def test_a_window_without_a_weight_pool_gives_its_cells_to_others(tmp_path: Path) -> None:
    file = GrowingFile(tmp_path / "run.mscope")
    rows = [row for row in facts() + step(0) + step(1) if row["kind"] != Kind.POOL_HIT]
    file.append([row for row in rows if row["kind"] != Kind.POOL_RETURN])
    async with live(tmp_path / "run.mscope") as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        text = screen_text(pilot)
        assert "pool hit rate" not in text
        assert "peak layers" in text


async def test_a_finished_recording_shows_layers_of_the_moment_of_its_metrics(
    tmp_path: Path,
) -> None:
    file = GrowingFile(tmp_path / "run.mscope")
    file.append([*facts(), *step(0)])
    evictions = [
        {"kind": Kind.EVICT, "t_ns": 200 * MS, "layer": layer, "bytes": SLAB, "value": 7}
        for layer in (4, 5)
    ]
    file.append(evictions)
    file.end()
    async with live(tmp_path / "run.mscope") as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 2)
        text = " ".join(screen_text(pilot).split())
        assert "Layers, step 0" in text
        assert "█ resident 2 ▒ in flight 0 · evicted 4" in text


async def test_an_upload_whose_layer_is_not_written_yet_is_not_none_in_flight(
    tmp_path: Path,
) -> None:
    file = GrowingFile(tmp_path / "run.mscope")
    rows = step(0)
    reading = sample(50 * MS, "residency.in_flight_bytes", SLAB, step=0)
    file.append([*facts(), *rows[:-1], reading, rows[-1]])
    async with live(tmp_path / "run.mscope") as pilot:
        await until(pilot, lambda: shown_batch(pilot) == 1)
        assert "in flight ? (1.00 MiB)" in screen_text(pilot)
        ahead = {"kind": Kind.UPLOAD, "t_ns": 1, "step": 1, "layer": 0, "bytes": SLAB, "value": 7}
        file.append([ahead])
        await until(pilot, lambda: shown_batch(pilot) == 2)
        assert "▒ in flight 1 " in screen_text(pilot)
