"""A memory snapshot of torch as a page: `memscope report SNAPSHOT`."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest
from test_html_browser import BROWSER, dump_dom

from tests.dashboards.html.small_runs import HOSTILE
from tests.paths import DATA

pytest.importorskip("plotly")

from memscope.analysis.diagnosis.snapshot.explain import explain_snapshot
from memscope.analysis.diagnosis.snapshot.picture import read_snapshot_picture
from memscope.cli import main
from tests.memscope.fake_allocator import MIB, FakeAllocator, FakeOom

CASES = DATA / "snapshots"


def report(source: Path, folder: Path) -> str:
    page = folder / "page.html"
    assert main(["report", str(source), "-o", str(page), "--force"]) == 0
    return page.read_text(encoding="utf-8")


def failed(by: str = "keep") -> FakeAllocator:
    """Half of a segment free, none of it in one piece, when a request failed."""
    allocator = FakeAllocator(300 * MIB)
    allocator.free(allocator.alloc(256 * MIB))
    made = [allocator.alloc(64 * MIB, by=by) for _ in range(4)]
    allocator.free(made[0])
    allocator.free(made[2])
    with pytest.raises(FakeOom):
        allocator.alloc(128 * MIB)
    return allocator


@pytest.mark.parametrize("case", ["fragmented", "pending_frees", "graph_pool", "huge_request"])
def test_page_says_what_explain_says(case: str, tmp_path: Path) -> None:
    path = CASES / f"{case}.pickle"
    page, found = report(path, tmp_path), explain_snapshot(path)
    assert f"Memory snapshot {case}.pickle" in page
    assert (found.diagnosis or "Nothing failed").replace("_", " ") in page
    assert all(advice.setting.split(" (")[0] in page for advice in found.help)
    assert ("plot-blocks" in page) == bool(found.details["buckets"])


def test_map_is_the_one_of_the_failed_request(tmp_path: Path) -> None:
    allocator = failed()
    (segment,) = allocator.segments.values()
    for block in list(segment.blocks):
        if block.state != "inactive":
            allocator.free(block.address)
    path = tmp_path / "later.pickle"
    path.write_bytes(pickle.dumps(allocator.snapshot()))
    picture = read_snapshot_picture(path).picture
    assert picture is not None
    (row,) = picture.rows
    assert [cell.state for cell in row.cells] == ["free", "allocated"] * 2
    assert "Segments and blocks, when the last request failed" in report(path, tmp_path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_every_form_of_a_snapshot_is_known(packed: bool, as_json: bool, tmp_path: Path) -> None:
    data = failed().snapshot()
    content = json.dumps(data).encode() if as_json else pickle.dumps(data)
    path = tmp_path / "snapshot"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert "Diagnosis: fragmentation" in report(path, tmp_path)


def test_page_is_named_after_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEMSCOPE_DIR", str(tmp_path))
    assert main(["report", str(CASES / "fragmented.pickle")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'fragmented.html'}\n"


@pytest.mark.parametrize("options", [["--at", "peak"], ["--warm-up", "3"]])
def test_options_of_recordings_are_refused(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(CASES / "fragmented.pickle"), "-o", str(page), *options]) == 2
    assert "A memory snapshot has no steps." in capsys.readouterr().err
    assert not page.exists()


@pytest.mark.parametrize(
    "content", [b"\x80\x04", b"\x80\x04cos\nsystem\n.", b'{"segments": 3}', b"\x1f\x8bx", b"a log"]
)
def test_what_is_no_snapshot_is_one_sentence(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, page = tmp_path / "x.pickle", tmp_path / "page.html"
    path.write_bytes(content)
    assert main(["report", str(path), "-o", str(page)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not page.exists()


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH")
def test_map_draws_in_a_browser_with_hostile_names(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(failed(by=HOSTILE).snapshot()))
    assert "<script>alert" not in report(path, tmp_path)
    dom, log = dump_dom(tmp_path / "page.html", tmp_path / "profile")
    assert '<html lang="en" data-charts="drawn">' in dom
    assert dom.partition('id="plot-blocks"')[2].count('class="point"') == 4
    assert "CONSOLE" not in log
