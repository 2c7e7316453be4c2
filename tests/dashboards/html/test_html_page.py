"""The page itself: what it says, and what it must not let through."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memscope.cli.report import write_report
from memscope.reader.recording import open_recording
from memscope.units import format_value
from tests.dashboards.html.small_runs import (
    HOSTILE,
    cut,
    record_nothing,
    record_one_event,
    record_out_of_memory,
    record_run,
)

pytest.importorskip("plotly")

from memscope.analysis.summary.summary import Summary, summarize
from memscope.analysis.timeline.read import read_timeline

RUNS: dict[str, Callable[[Path], Path]] = {
    "empty": record_nothing,
    "one event": record_one_event,
    "recorded": record_run,
    "partial": lambda path: cut(record_run(path)),
    "out of memory": record_out_of_memory,
}


def page_of(recording: Path, **options: Any) -> str:
    path = recording.with_suffix(".html")
    write_report(recording, path, **options)
    return path.read_text(encoding="utf-8")


def summary_of(path: Path) -> Summary:
    with open_recording(path) as recording:
        return summarize(read_timeline(recording), recording.state)


def visible(page: str) -> str:
    """The page without what its scripts and styles hold."""
    return re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", visible(page)))


def chart_data(page: str) -> list[dict[str, Any]]:
    found = re.search(r'id="chart-data">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


@pytest.mark.parametrize("name", RUNS)
def test_page_is_whole_and_small_for_every_recording(name: str, tmp_path: Path) -> None:
    page = page_of(RUNS[name](tmp_path / "run.mscope"))
    assert page.startswith("<!doctype html>")
    assert page.endswith("</html>\n")
    assert len(page.encode()) < 3_000_000
    for section in ("verdicts", "metrics", "charts", "facts"):
        assert f'<section id="{section}">' in page


@pytest.mark.parametrize("name", RUNS)
def test_every_metric_is_the_one_of_the_summary(name: str, tmp_path: Path) -> None:
    recording = RUNS[name](tmp_path / "run.mscope")
    page, summary = page_of(recording), summary_of(recording)
    shown = {
        html.unescape(metric): html.unescape(value)
        for metric, value in re.findall(
            r'<th><code>([^<]*)</code></th><td class="value[^"]*">([^<]*)</td>', page
        )
    }
    absent = {True: "not measured", False: "not applicable"}
    assert shown == {
        metric.name: (
            absent[metric.is_applicable]
            if metric.value is None
            else format_value(metric.value, metric.unit)
        )
        for metric in summary.metrics.values()
    }


def test_verdicts_come_before_anything_else_with_their_advice(tmp_path: Path) -> None:
    recording = record_run(tmp_path / "run.mscope")
    main = text_of(page_of(recording).partition("<main>")[2])
    broken = [verdict for verdict in summary_of(recording).verdicts if verdict.verdict == "fail"]
    assert broken
    assert main.split()[:2] == ["Limits", "broken:"]
    for verdict in broken:
        assert verdict.limit in main
        assert verdict.advice in main


def test_partial_recording_says_so_before_its_verdicts(tmp_path: Path) -> None:
    whole = record_run(tmp_path / "whole.mscope")
    part = cut(record_run(tmp_path / "part.mscope"))
    said = "This recording is partial"
    assert said not in page_of(whole)
    page = page_of(part)
    assert page.index(said) < page.index('id="verdicts"')
    assert "(partial recording)" in page


def test_out_of_memory_stands_at_the_top_with_its_sizes(tmp_path: Path) -> None:
    page = page_of(record_out_of_memory(tmp_path / "run.mscope"))
    top = text_of(page.partition("<main>")[2].partition('id="verdicts"')[0])
    assert "Out of memory in step 3" in top
    assert "2.00 MiB requested" in " ".join(top.split())


def test_recording_without_anything_to_draw_says_so(tmp_path: Path) -> None:
    page = page_of(record_nothing(tmp_path / "run.mscope"))
    assert chart_data(page) == []
    assert text_of(page).count("Nothing to draw") == 2


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    page = page_of(record_run(tmp_path / "run.mscope", name=HOSTILE))
    seen = visible(page)
    assert "<script" not in seen
    assert "<b onload" not in page
    assert not set(page) & {"\u2028", "\x1b", "\u202e"}
    assert "alert(1)" in text_of(page)
    ends = page.count("</script>")
    assert ends == 3, "a name ended a script element"
    assert chart_data(page)


def test_names_in_charts_are_no_markup(tmp_path: Path) -> None:
    page = page_of(record_run(tmp_path / "run.mscope", name="<a href='https://x.test'>y</a>"))
    memory = next(chart for chart in chart_data(page) if chart["id"] == "plot-memory")
    (text,) = [note["text"] for note in memory["figure"]["layout"]["annotations"]]
    assert "<" not in text
    assert html.unescape(text).startswith("<a href='https://x.test'>")


def test_page_fetches_nothing(tmp_path: Path) -> None:
    page = page_of(record_run(tmp_path / "run.mscope"))
    without_payloads = re.sub(r'<script type="application/octet-stream".*?</script>', "", page)
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", without_payloads)
    assert "default-src 'none'" in page
    assert not re.search(r"<(link|img|iframe|script[^>]* src)", page)


def test_policy_allows_the_scripts_of_the_page_alone(tmp_path: Path) -> None:
    import hashlib

    page = page_of(record_run(tmp_path / "run.mscope"))
    found = re.search(r"script-src ([^;]*);", page)
    assert found
    own = re.search(r"<script>(.*?)</script>", page, re.S)
    packed = re.search(r'id="plotly-gzip">(.*?)</script>', page, re.S)
    assert own
    assert packed
    library = gzip.decompress(base64.b64decode(packed[1]))
    hashes = [base64.b64encode(hashlib.sha256(x).digest()) for x in (own[1].encode(), library)]
    assert found[1].split() == [f"'sha256-{each.decode()}'" for each in hashes]


def test_host_device_is_never_called_a_gpu(tmp_path: Path) -> None:
    host = text_of(page_of(record_run(tmp_path / "host.mscope")))
    card = text_of(page_of(record_run(tmp_path / "card.mscope", kind="cuda")))
    assert "Memory over time: host device, no GPU" in host
    assert "Memory over time: GPU" in card


def test_plotly_keeps_its_licence(tmp_path: Path) -> None:
    text = text_of(page_of(record_run(tmp_path / "run.mscope")))
    assert re.search(r"Copyright .*Plotly, Inc", text)
    assert "Permission is hereby granted, free of charge" in text


def test_page_up_to_a_step_holds_the_metrics_of_that_step(tmp_path: Path) -> None:
    recording = record_run(tmp_path / "run.mscope")
    page = page_of(recording, at="step:3")
    (work,) = [chart for chart in chart_data(page) if chart["id"] == "plot-work"]
    assert len(decode(work["figure"]["data"][0]["x"])) == 4


def test_long_run_stays_under_three_megabytes(tmp_path: Path) -> None:
    page = page_of(record_run(tmp_path / "run.mscope", steps=5000))
    assert len(page.encode()) < 3_000_000
    (work,) = [chart for chart in chart_data(page) if chart["id"] == "plot-work"]
    assert len(decode(work["figure"]["data"][0]["x"])) <= 2048
    assert "Each bar shows the highest of several steps" in text_of(page)


def decode(array: Any) -> list[float]:
    """Numbers as plotly writes them: a list, or an array's bytes in base64."""
    import numpy as np

    if isinstance(array, list):
        return array
    numbers: list[float] = np.frombuffer(
        base64.b64decode(array["bdata"]), dtype=array["dtype"]
    ).tolist()
    return numbers
