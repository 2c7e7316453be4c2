"""`memscope check`: its exit codes, and where its limits come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.memscope.analysis.build import event, fact
from tests.memscope.analysis.sweeps import run_sweeps
from tests.memscope.cli.conftest import Run
from tests.memscope.cli.recordings import damage_batch, write_recording

KEPT = "driver.calls_per_step == 0"
BROKEN = "residency.uploads_per_step <= 7"
UNMEASURED = "upload.link_ratio >= 0.9"


def limits(*texts: str) -> list[str]:
    return [word for text in texts for word in ("--limit", text)]


@pytest.mark.parametrize(
    ("texts", "complete", "partial"),
    [
        ((KEPT, "pool.hit_rate >= 1"), 0, 3),
        ((KEPT, BROKEN), 1, 1),
        ((KEPT, UNMEASURED), 1, 1),
        (("residency.uploads_per_step == 8",), 0, 3),
        (("memory.peak_bytes",), 2, 2),
        (("memory.peak_bytes <= 2 ms",), 2, 2),
    ],
)
def test_exit_codes_of_named_limits(
    memscope: Run, whole: Path, cut: Path, texts: tuple[str, ...], complete: int, partial: int
) -> None:
    assert memscope("check", whole, *limits(*texts)).code == complete
    assert memscope("check", cut, *limits(*texts)).code == partial


def test_a_bare_check_judges_the_defaults(memscope: Run, tmp_path: Path, whole: Path) -> None:
    assert memscope("check", whole).code == 1  # past keeps 8 slabs at its peak: 3.6 avoidable
    pinned = write_recording(tmp_path / "pinned.mscope", run_sweeps("pinned", 12, 6))
    assert memscope("check", pinned).code == 0


def test_a_broken_default_does_not_count_beside_a_named_limit(memscope: Run, whole: Path) -> None:
    found = memscope("check", whole, *limits(KEPT))
    assert found.code == 0
    assert "fail  residency.avoidable_uploads <= 2" in found.out
    assert "defaults, shown only" in found.out


def test_a_damaged_recording_is_partial(memscope: Run, whole: Path) -> None:
    damage_batch(whole)
    found = memscope("check", whole, *limits("oom.engine_count == 0"))
    assert found.code == 3
    assert "damaged" in found.out
    assert "limits (partial)" in found.out


def test_the_worst_recording_decides(memscope: Run, whole: Path, cut: Path) -> None:
    assert memscope("check", whole, cut, *limits(KEPT)).code == 3
    assert memscope("check", cut, whole, *limits(BROKEN)).code == 1
    found = memscope("check", whole, whole.with_name("none.mscope"), *limits(KEPT))
    assert (found.code, found.out) == (2, "")
    assert "does not exist" in found.err


def test_limits_come_from_the_nearest_pyproject_that_has_some(
    memscope: Run, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[tool.memscope]\nlimits = ["{BROKEN}"]\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text('[project]\nname = "x"\n')
    monkeypatch.chdir(below)
    assert memscope("check", whole).code == 1
    assert memscope("check", whole, *limits(KEPT)).code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.memscope]\nlimits = 3", "no list of texts"),
        ("[tool.memscope]\nlimits = [3]", "no list of texts"),
        ('[tool.memscope]\nlimits = ["nothing"]', "is no figure 'nothing'"),
        ("[tool.memscope", "cannot be read"),
    ],
)
def test_a_bad_pyproject_is_wrong_use(
    memscope: Run, whole: Path, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    found = memscope("check", whole)
    assert found.code == 2
    assert words in found.err


def test_json_of_one_and_of_several(memscope: Run, whole: Path, cut: Path) -> None:
    found = memscope("check", whole, *limits(BROKEN), "--json")
    data = json.loads(found.out)
    assert found.code == 1
    assert data["limits"][0]["limit"] == BROKEN
    assert (data["limits"][0]["verdict"], data["limits"][0]["value"]) == ("fail", 8)
    several = json.loads(memscope("check", whole, cut, "--json").out)
    assert [each["state"] for each in several] == ["complete", "cut"]


def test_warmup_can_be_given(memscope: Run, whole: Path) -> None:
    rate = "pool.hit_rate >= 1"
    assert memscope("check", whole, *limits(rate)).code == 0
    assert memscope("check", whole, *limits(rate), "--warm-up", 0).code == 1
    assert memscope("check", whole, *limits(rate), "--warm-up", 99).code == 1
    assert memscope("check", whole, "--warm-up", "two").code == 2


def test_list_names_every_figure(memscope: Run) -> None:
    found = memscope("check", "--list")
    assert found.code == 0
    assert "driver.calls_per_step  calls  == 0" in found.out


def test_no_recording_is_wrong_use(memscope: Run) -> None:
    assert memscope("check").code == 2


def test_a_run_out_of_memory_breaks_its_default(memscope: Run, tmp_path: Path) -> None:
    rows = [fact("run.kind", "q8-decode"), event(9), event(28, 5, bytes=10)]
    path = write_recording(tmp_path / "oom.mscope", rows)
    assert memscope("check", path).code == 1
