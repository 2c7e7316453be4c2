"""What a page says of devices: how many there are, and what is absent without any."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("plotly")

from test_html_page import page_of, text_of, visible
from test_plain_charts import record_program, record_seconds


def section(page: str, name: str) -> str:
    return page.partition(f'<section id="{name}">')[2].partition("</section>")[0]


def test_without_a_gpu_one_line_says_what_is_absent(tmp_path: Path) -> None:
    verdicts = section(page_of(record_seconds(tmp_path / "run.mscope")), "verdicts")
    absent = "No GPU was recorded: 26 metrics of device memory have no value and 12 default limits"
    assert f"{absent} are not judged." in text_of(verdicts)
    for name in ("memory.peak_ratio", "kv.peak_utilisation", "growth.allocated"):
        assert name not in verdicts
    assert "oom.request_rate" in verdicts, "what no device would change has its own reason"


def test_every_absent_metric_has_its_reason_further_down(tmp_path: Path) -> None:
    metrics = section(page_of(record_seconds(tmp_path / "run.mscope")), "metrics")
    assert "memory.peak_ratio" in metrics
    assert "No device is recorded." in metrics


def test_with_a_gpu_each_limit_has_its_reason(tmp_path: Path) -> None:
    verdicts = section(page_of(record_program(tmp_path / "run.mscope")), "verdicts")
    assert "No GPU was recorded" not in verdicts
    assert "kv.peak_utilisation" in verdicts


@pytest.mark.parametrize(
    ("devices", "words"), [(1, "· H200"), (2, "· 2 × H200, peak 152 MiB on 2 GPUs")]
)
def test_the_subtitle_names_all_devices(tmp_path: Path, devices: int, words: str) -> None:
    page = page_of(record_program(tmp_path / "run.mscope", devices=devices))
    assert f"{words} " in " ".join(text_of(visible(page)).split())
