"""The allocator's map on the page: bars are its blocks, to scale."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.html.small_runs import HOSTILE, record_nothing

pytest.importorskip("plotly")

from test_html_browser import BROWSER, dump_dom

from memscope import Recorder
from memscope.analysis.memory_map.block_picture import BlockPicture, recorded_picture
from memscope.analysis.timeline.read import read_timeline
from memscope.cli.report import write_report
from memscope.events import Kind
from memscope.probes.torch.allocator_map import emit_map
from memscope.reader.recording import open_recording
from memscope_dashboards.html.block_chart import draw_blocks
from tests.memscope.fake_allocator import MIB, FakeAllocator


def record_map(path: Path, allocator: FakeAllocator) -> Path:
    recorder = Recorder(path)
    now = recorder.clock()
    recorder.emit(Kind.OOM, 3, bytes=64 * MIB, data={"scope": "engine"}, at_ns=now)
    emit_map(recorder, allocator.snapshot(), device=0, at_ns=now, torch_version="2.12")
    recorder.close()
    return path


def picture_of(path: Path) -> BlockPicture:
    with open_recording(path) as recording:
        found = recorded_picture(read_timeline(recording))
    assert found is not None
    return found


def fragmented(by: str = "keep") -> FakeAllocator:
    allocator = FakeAllocator()
    allocator.free(allocator.alloc(256 * MIB))
    made = [allocator.alloc(64 * MIB, by=by) for _ in range(4)]
    allocator.free(made[1])
    allocator.free(made[2], completes=False)
    for _ in range(2):
        allocator.alloc(16 * MIB, pool=(0, 7), by=by)
    return allocator


def traces(chart: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for trace in chart.figure.data:
        found.setdefault(trace.name, []).append(trace)
    return found


def test_bars_are_blocks_to_scale(tmp_path: Path) -> None:
    chart = draw_blocks(picture_of(record_map(tmp_path / "run.mscope", fragmented())))
    found = traces(chart)
    upper, lower = found["allocated"]
    assert (list(upper.base), list(upper.x)) == ([0, 192], [64, 64])
    assert (list(lower.base), list(lower.x)) == ([0], [16])
    (free,), (pending,) = found["free"], found["freed, another stream may still use it"]
    assert (list(free.base), list(pending.base)) == ([64], [128])
    assert upper.hovertext[1] == "<b>64.0 MiB allocated</b><br>at 192 MiB of 256 MiB<br>" + (
        "keep (train.py:1)"
    )
    assert lower.hovertext[0].startswith("<b>32.0 MiB allocated</b><br>in 2 segments in total")


def test_rows_are_named_by_size_number_and_pool(tmp_path: Path) -> None:
    chart = draw_blocks(picture_of(record_map(tmp_path / "run.mscope", fragmented())))
    names = [name for axis in chart.figure.select_yaxes() for name in axis.ticktext]
    assert names == ["256 MiB", "16.0 MiB × 2 · private pool (0, 7)"]
    units = [axis.title.text for axis in chart.figure.select_xaxes()]
    assert [unit.partition(";")[0] for unit in units] == ["MiB"] * 2


def test_each_state_stands_in_the_legend_once(tmp_path: Path) -> None:
    chart = draw_blocks(picture_of(record_map(tmp_path / "run.mscope", fragmented())))
    shown = [trace.name for trace in chart.figure.data if trace.showlegend]
    assert len(shown) == len(set(shown)) == 3


def test_what_is_not_drawn_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memscope.analysis.memory_map.block_picture.MOST_ROWS", 1)
    chart = draw_blocks(picture_of(record_map(tmp_path / "run.mscope", fragmented())))
    assert "3 segments, 288 MiB in total" in chart.note
    assert "Not drawn: 2 segments, 32.0 MiB in total." in chart.note


def test_page_has_the_map_where_memory_ran_out_and_only_there(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_report(record_map(tmp_path / "run.mscope", fragmented()), page)
    assert 'id="plot-blocks"' in page.read_text()
    write_report(record_nothing(tmp_path / "none.mscope"), page, force=True)
    assert "plot-blocks" not in page.read_text()


def test_a_map_of_thousands_of_blocks_stays_small(tmp_path: Path) -> None:
    allocator, chance = FakeAllocator(), random.Random(1)
    for _ in range(40):
        allocator.free(allocator.alloc(chance.randrange(900, 1000) * MIB))
    live = [
        allocator.alloc(chance.randrange(2, 20) * MIB, by=f"<{'&' * 300}{number}")
        for number in range(2500)
    ]
    for address in chance.sample(live, 1200):
        allocator.free(address)
    chart = draw_blocks(picture_of(record_map(tmp_path / "run.mscope", allocator)))
    assert len(chart.figure.to_json()) < 1_000_000


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH")
def test_map_draws_in_a_browser_with_hostile_owners(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_report(record_map(tmp_path / "run.mscope", fragmented(by=HOSTILE)), page)
    dom, log = dump_dom(page, tmp_path / "profile")
    assert '<html lang="en" data-charts="drawn">' in dom
    drawn = dom.partition('id="plot-blocks"')[2].partition('<div class="chart">')[0]
    assert drawn.count('class="point"') == 5
    assert "private pool (0, 7)" in drawn
    assert "CONSOLE" not in log
