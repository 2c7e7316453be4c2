"""The report of a run of several processes: one page, a table of all, memory on one axis."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from memscope import Recorder
from memscope.cli import main
from memscope.events import Kind

pytest.importorskip("plotly")
GIB = 1 << 30
HOSTILE = "<script>alert(1)</script>"


def record_process(
    path: Path,
    pid: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    rank: int | None = None,
    held: dict[int, int] | None = None,
    steps: int = 0,
    source: str = "program",
    host: int | None = None,
) -> None:
    """``held``: device → bytes, read at each of ``steps`` and once before them."""
    with monkeypatch.context() as patched:
        patched.setenv("MEMSCOPE_RUN_ID", "a")
        patched.setattr(os, "getpid", lambda: pid)
        patched.setattr("sys.argv", ["train.py", HOSTILE])
        if rank is not None:
            patched.setenv("RANK", str(rank))
        recorder = Recorder(path)
    recorder.sample("host.rss_bytes", bytes=pid << 20 if host is None else host)
    for device in held or {}:
        recorder.fact(f"cuda.{device}", {"name": "H200", "kind": "cuda", "total_bytes": 140 * GIB})
    for step in range(-1, steps):
        if step == 0:
            recorder.take_steps(source)
        for device, size in (held or {}).items():
            recorder.sample("torch.reserved_bytes", bytes=size, device=device)
        if step >= 0:
            length_ns = 1_000_000_000 if source == "second" else 1000
            recorder.emit(Kind.STEP, step, duration_ns=length_ns)
    recorder.close()


def make_page(folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """The page of the run in ``folder`` and the traces of its run chart."""
    page = folder / "page.html"
    assert main(["report", str(folder), "-o", str(page), "--force"]) == 0
    text = page.read_text()
    found = re.search(r'<script type="application/json" id="chart-data">(.*?)</script>', text)
    assert found is not None
    charts = {chart["id"]: chart["figure"]["data"] for chart in json.loads(found[1])}
    return text, charts.get("plot-run", [])


def test_server_shows_its_child_that_holds_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_process(tmp_path / "run.mscope", 100, monkeypatch)
    record_process(tmp_path / "run.200.mscope", 200, monkeypatch, held={0: GIB})
    text, traces = make_page(tmp_path)
    assert "A run of 2 processes" in text
    assert "Child process 200 held the most: 1.00 GiB" in text
    assert "200 (shown)" in text
    assert "Aligned by the wall clock" in text
    assert [trace["name"] for trace in traces] == [
        "process 200, device 0",
        "process 100",
        "process 200",
    ]
    assert HOSTILE not in text


@pytest.mark.parametrize("held", [{0: GIB}, None], ids=["on a device", "on the host"])
def test_a_launcher_stands_behind_its_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: dict[int, int] | None
) -> None:
    launcher = tmp_path / "run.mscope"
    record_process(launcher, 100, monkeypatch, steps=5, source="second", host=40 * GIB)
    for rank in range(2):
        path = tmp_path / f"run.{rank}.mscope"
        record_process(path, 10 + rank, monkeypatch, rank=rank, held=held, steps=3, host=GIB)
    text, _ = make_page(tmp_path)
    assert "10 (shown)" in text
    assert "The rest of this page is about rank 0 (10)." in text
    glance = text.partition('id="glance"')[2].partition("</section>")[0]
    assert "<strong>1.00 GiB</strong><span>peak host RSS" in glance
    assert "1.00 s" not in glance


def test_the_duration_of_steps_that_are_seconds_is_no_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_process(tmp_path / "run.mscope", 100, monkeypatch, steps=5, source="second")
    text, _ = make_page(tmp_path)
    assert "peak host RSS" in text
    assert "1.00 s" not in text.partition('id="glance"')[2].partition("</section>")[0]


def test_ranks_stand_on_an_axis_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        path = tmp_path / f"run.{rank}.mscope"
        record_process(path, 10 + rank, monkeypatch, rank=rank, held={0: GIB}, steps=3)
    text, traces = make_page(tmp_path)
    assert "Aligned by step. By the wall clock, rank 1 (11) ended" in text
    assert "2 processes held about the same" in text
    assert "finished steps" in text
    assert [trace["name"] for trace in traces][:2] == [
        "rank 0 (10), device 0",
        "rank 1 (11), device 0",
    ]


def test_devices_of_one_process_stand_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_process(tmp_path / "run.mscope", 100, monkeypatch, held={0: GIB, 1: 2 * GIB})
    text, traces = make_page(tmp_path)
    assert "One process on several devices" in text
    assert ">3.00 GiB on 2 GPUs<" in text
    assert "peak, all GPUs" in text
    assert 'data-name="peak, all GPUs">3.00 GiB' in text, "a narrow page has no row of headings"
    glance = text.partition('id="glance"')[2].partition("</section>")[0]
    assert "<strong>2.00 GiB</strong>" in glance
    assert glance.count("cuda:1, the highest of 2 GPUs") == 2, "bytes, and their share"
    assert "(cuda:1, the highest of 2 GPUs)" in text, "the verdict says so, too"
    assert len({trace["line"]["dash"] for trace in traces[:2]}) == 2


def test_one_process_on_one_device_has_no_overview(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_process(tmp_path / "run.mscope", 100, monkeypatch, held={0: GIB})
    text, traces = make_page(tmp_path)
    assert 'id="run"' not in text
    assert traces == []


def test_thirty_processes_leave_the_low_ones_out_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in range(1, 31):
        record_process(tmp_path / f"run.{pid}.mscope", pid, monkeypatch, held={0: pid << 20})
    text, traces = make_page(tmp_path)
    assert "Not drawn: 12 lower curves." in text
    assert len(traces) == 48


def test_page_is_named_after_the_first_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record_process(tmp_path / "run.mscope", 100, monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert main(["report", "."]) == 0
    assert capsys.readouterr().out == "run.html\n"
