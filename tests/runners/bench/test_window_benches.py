"""The benches of the window run on any machine, and say what they could not measure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memscope.cli import main
from memscope.errors import MemscopeError
from memscope_runners.bench.cost_curve import default_settings, parse_setting
from memscope_runners.settings import Settings

QUICK = ["--model", "synthetic:tiny", "--device", "host", "--tokens", "4", "--rounds", "1"]


def bench(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["bench", *arguments, *QUICK, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_cost_curve_has_a_row_for_each_setting(capsys, tmp_path):
    path = tmp_path / "curve.json"
    settings = ["off", "past:2", "pinned:4:ahead"]
    result = bench(capsys, "cost-curve", "--settings", *settings, "-o", str(path))
    assert json.loads(path.read_text()) == result
    off, past, pinned = result["rows"]
    assert (off["entries_at_step_end"], past["entries_at_step_end"]) == (43, 15)
    assert (past["peak_entries"], past["uploads_per_step"]) == (29, 4)
    assert pinned["prefetch"]
    assert pinned["uploads_per_step"] == 6 - 4 + 2
    assert off["peak_bytes"] > past["peak_bytes"]
    assert all(row["is_outcome_same"] for row in result["rows"])
    assert result["pinned_copy_gb_per_s"] is None
    assert "no link" in result["pinned_copy_reason"]


def test_default_settings_cover_every_policy():
    settings = default_settings(28)
    without = [each.keep for each in settings if not each.prefetch]
    assert without == [None, 27, 26, 20, 12, 4, 1]
    assert {each.policy for each in settings} == {"off", "past", "symmetric", "lru", "pinned"}
    assert len(settings) <= 40


def test_setting_as_it_is_written():
    assert parse_setting("past:20:ahead") == Settings("past", 20, prefetch=True)
    assert parse_setting("off") == Settings("off", prefetch=False)


@pytest.mark.parametrize("text", ["past:x", "past:2:behind", "past:-1", "past:1:ahead:on"])
def test_setting_that_makes_no_sense_is_refused(text):
    with pytest.raises(MemscopeError, match="no setting"):
        parse_setting(text)
