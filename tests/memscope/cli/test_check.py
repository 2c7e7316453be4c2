"""`memscope check`: its exit codes, and where its limits come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memscope.analysis.metrics.table import METRICS
from memscope.analysis.timeline.reading_names import READINGS
from memscope.events import Kind
from tests.memscope.analysis.build import event, fact
from tests.memscope.analysis.sweeps import run_sweeps
from tests.memscope.cli.recordings import damage_batch, write_recording
from tests.memscope.cli.verb_run import Run

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
    assert "default limits, which do not decide here" in found.out


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


UPLOADS = "residency.uploads_per_step"


def configure(folder: Path, *lines: str) -> None:
    (folder / "pyproject.toml").write_text("\n".join(["[tool.memscope]", *lines]))


def test_limits_come_from_the_nearest_pyproject_that_has_some(
    memscope: Run, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, f'limits = ["{BROKEN}"]')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text('[project]\nname = "x"\n')
    monkeypatch.chdir(below)
    assert memscope("check", whole).code == 1


def test_the_nearer_limit_on_a_metric_counts(memscope: Run, whole: Path, tmp_path: Path) -> None:
    """Uploads are 8 a step: a limit of 7 is broken, one of 9 holds."""

    def code(*words: object) -> int:
        return memscope("check", whole, *words).code

    assert code() == 1  # the default of avoidable uploads
    configure(tmp_path, f'limits = ["{UPLOADS} <= 9"]')
    assert code() == 0  # pyproject over the defaults
    file = tmp_path / "limits.toml"
    file.write_text(f'limits = ["{UPLOADS} <= 7"]')
    assert code("--limits", file) == 1  # the file over pyproject
    assert code("--limits", file, *limits(f"{UPLOADS} <= 9")) == 0  # the command line over both
    configure(tmp_path, f'limits = ["{UPLOADS} <= 7"]')
    file.write_text(f'limits = ["{UPLOADS} <= 9"]')
    assert code("--limits", file) == 0


def test_farther_limits_on_other_metrics_stand(memscope: Run, whole: Path, tmp_path: Path) -> None:
    configure(tmp_path, f'limits = ["{BROKEN}"]')
    found = memscope("check", whole, *limits(KEPT))
    assert found.code == 1
    assert "1 limit holds, 1 broken." in found.out


def test_what_could_not_be_judged_is_not_counted_as_broken(memscope: Run, tmp_path: Path) -> None:
    """Of a program without any device one default alone has a value."""
    path = write_recording(tmp_path / "plain.mscope", [fact("run.kind", "q8-decode")])
    of_device = sum(len(row.limits) for row in METRICS) - 2  # of errors and of requests
    found = memscope("check", path)
    absent = f"and {of_device} default limits are not judged (--json lists them)."
    assert found.code == 0
    assert found.out.endswith(
        "\nno value: oom.request_rate\nno GPU was recorded: 26 metrics of device memory have no "
        f"value {absent}\n1 limit holds, 1 not applicable.\n"
    )
    found = memscope("check", path, *limits("oom.engine_count > 0", "memory.peak_bytes <= 1 B"))
    assert found.out.endswith("\n0 limits hold, 1 broken, 1 could not be judged.\n")


def test_of_nothing_measured_no_limit_holds(memscope: Run, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "plain.mscope", [event(Kind.MARK, 1, name="up")])
    found = memscope("check", path)
    assert found.code == 0
    assert found.out.endswith("\n0 limits hold, 1 could not be judged, 1 not applicable.\n")


def test_a_named_limit_on_an_absent_device_is_counted(memscope: Run, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "plain.mscope", [fact("run.kind", "q8-decode")])
    found = memscope("check", path, *limits("memory.peak_ratio", "oom.engine_count"))
    assert found.code == 1
    assert found.out.endswith("\n1 limit holds, 1 could not be judged.\n")
    assert "and 11 default limits are not judged" in found.out


def test_a_limit_on_a_reading_names_the_device(memscope: Run, tmp_path: Path) -> None:
    gpu = {"name": "H200", "kind": "cuda", "total_bytes": 80 << 30}
    rows = [fact(f"cuda.{device}", gpu) for device in (0, 1)]
    rows += [
        event(Kind.SAMPLE, 1, name="torch.reserved_bytes", bytes=(1 + device) << 30, device=device)
        for device in (0, 1)
    ]
    path = write_recording(tmp_path / "two.mscope", rows)
    found = memscope("check", path, *limits("torch.reserved_bytes.peak <= 1 GiB"))
    assert "2.00 GiB (cuda:1, the highest of 2 GPUs)" in found.out
    metrics = json.loads(
        memscope("check", path, "--json", *limits("torch.reserved_bytes.peak <= 1 B")).out
    )
    assert metrics["metrics"]["torch.reserved_bytes.peak"]["of"] == "cuda:1, the highest of 2 GPUs"


def test_a_limit_that_does_not_apply_is_counted_as_such(memscope: Run, whole: Path) -> None:
    found = memscope("check", whole, *limits("torch.reserved_bytes.peak <= 1 GiB"))
    assert "0 limits hold, 1 not applicable." in found.out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.memscope]\nlimits = 3", "not a list of strings"),
        ('[tool.memscope]\nlimits = ["nothing"]', "is no metric 'nothing'"),
        ('[tool.memscope]\nlimit = ["a"]', "Did you mean limits?"),
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
    assert "pyproject.toml" in found.err


def test_a_bad_limit_in_a_file_names_the_file(memscope: Run, whole: Path, tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text('limits = ["memory.peak_bytes <= 2 ms"]')
    found = memscope("check", whole, "--limits", "limits.toml")
    assert found.code == 2
    assert "limits.toml: memory.peak_bytes is measured in bytes, not in 'ms'" in found.err


def test_a_limit_on_a_reading_a_ratio_and_growth(memscope: Run, whole: Path) -> None:
    holding = ("device.allocated_bytes.peak <= 6 KiB", "device.allocated_bytes.p95 <= 6 KiB")
    assert memscope("check", whole, *limits(*holding)).code == 0
    broken = memscope("check", whole, *limits("device.allocated_bytes.peak <= 5 KiB"))
    assert broken.code == 1
    assert "fail  device.allocated_bytes.peak <= 5 KiB  5.56 KiB" in broken.out
    ratio = "device.allocated_bytes.end / memory.peak_bytes"
    assert memscope("check", whole, *limits(f"{ratio} <= 1")).code == 0
    assert memscope("check", whole, *limits(f"{ratio} > 1")).code == 1
    growth = memscope("check", whole, *limits("device.allocated_bytes.growth <= 1 KiB"))
    assert growth.code == 1
    assert "1 could not be judged" in growth.out


def test_an_unmeasured_reading_breaks_it_with_its_reason(memscope: Run, whole: Path) -> None:
    found = memscope("check", whole, *limits("my.own.peak <= 3"))
    assert found.code == 1
    assert "not measured  my.own.peak <= 3  my.own is not in this recording" in found.out
    found = memscope("check", whole, *limits("host.rss_byte.peak <= 3"))
    assert found.code == 2
    assert "Did you mean host.rss_bytes.peak" in found.err


@pytest.fixture
def baseline(memscope: Run, whole: Path, tmp_path: Path) -> Path:
    path = tmp_path / "baseline.toml"
    found = memscope("check", whole, *limits(KEPT), "--write-baseline", path)
    assert found.code == 0
    assert "baseline written" in found.err
    return path


def test_a_baseline_holds_until_a_metric_is_worse(
    memscope: Run, whole: Path, tmp_path: Path, baseline: Path
) -> None:
    found = memscope("check", whole, "--baseline", baseline)
    assert found.code == 0
    assert "residency.uploads_per_step <= 8 layers + 5 % (baseline)" in found.out
    worse = write_recording(tmp_path / "worse.mscope", run_sweeps("past", 12, 3))
    found = memscope("check", worse, "--baseline", baseline)
    assert found.code == 1
    assert "fail" in found.out


def test_a_tolerance_widens_the_baseline(memscope: Run, tmp_path: Path, baseline: Path) -> None:
    worse = write_recording(tmp_path / "worse.mscope", run_sweeps("past", 12, 3))
    named = ("check", worse, "--baseline", baseline, "--tolerance")
    assert memscope(*named, "100%").code == 0
    assert memscope(*named, "5%").code == 1
    found = memscope(*named, "wide")
    assert (found.code, "not a tolerance" in found.err) == (2, True)
    found = memscope("check", worse, "--tolerance", "5%")
    assert (found.code, "needs a baseline" in found.err) == (2, True)


def test_baseline_and_tolerance_of_pyproject(memscope: Run, tmp_path: Path, baseline: Path) -> None:
    worse = write_recording(tmp_path / "worse.mscope", run_sweeps("past", 12, 3))
    configure(tmp_path, f'limits = ["{KEPT}"]')
    assert memscope("check", worse).code == 0
    configure(tmp_path, f'limits = ["{KEPT}"]', f'baseline = "{baseline.name}"')
    assert memscope("check", worse).code == 1
    assert memscope("check", worse, "--tolerance", "100%").code == 0
    configure(tmp_path, f'baseline = "{baseline.name}"', 'tolerance = "100 %"')
    assert memscope("check", worse).code == 0
    assert memscope("check", worse, "--tolerance", "5%").code == 1


def test_a_baseline_is_not_held_against_what_is_to_replace_it(
    memscope: Run, tmp_path: Path, baseline: Path
) -> None:
    worse = write_recording(tmp_path / "worse.mscope", run_sweeps("past", 12, 3))
    configure(tmp_path, f'baseline = "{baseline.name}"', f'limits = ["{KEPT}"]')
    assert memscope("check", worse, "--write-baseline", baseline, "--force").code == 0
    assert memscope("check", worse).code == 0


def test_a_baseline_without_this_section(memscope: Run, whole: Path, baseline: Path) -> None:
    baseline.write_text(baseline.read_text().replace('["recording"]', '["tests/x.py::test"]'))
    found = memscope("check", whole, "--baseline", baseline)
    assert (found.code, "has no section 'recording'" in found.err) == (2, True)
    configure(baseline.parent, f'baseline = "{baseline.name}"', f'limits = ["{KEPT}"]')
    assert memscope("check", whole).code == 0
    missing = memscope("check", whole, "--baseline", "none.toml")
    assert (missing.code, "does not exist" in missing.err) == (2, True)


def test_elsewhere_it_warns(memscope: Run, whole: Path, baseline: Path) -> None:
    text = baseline.read_text().replace('device = "host"', 'device = "NVIDIA H200"')
    baseline.write_text(text)
    found = memscope("check", whole, "--baseline", baseline)
    assert found.code == 0
    assert "another class of machine (device NVIDIA H200 there, host here)" in found.err
    assert "memory.peak_bytes" not in found.out.partition("default limits")[0]


def test_no_baseline_of_a_partial_recording(memscope: Run, cut: Path, tmp_path: Path) -> None:
    found = memscope("check", cut, "--write-baseline", tmp_path / "b.toml")
    assert (found.code, "partial" in found.err) == (2, True)
    assert not (tmp_path / "b.toml").exists()


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two ranks of which the second uploads more, and of a helper without a window."""
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setenv("MEMSCOPE_RUN_ID", "one")
    programs = [("0", run_sweeps("past", 12, 4)), ("1", run_sweeps("past", 12, 3)), ("", [])]
    for number, (rank, rows) in enumerate(programs):
        monkeypatch.setenv("RANK", rank)
        write_recording(folder / f"{number}.mscope", rows)
    return folder


def test_every_process_of_a_run_is_judged(memscope: Run, run_folder: Path) -> None:
    found = memscope("check", run_folder, *limits(f"{UPLOADS} <= 8"))
    assert found.code == 1
    blocks = found.out.split("\n\n")
    assert len(blocks) == 3
    assert ["rank 0" in block for block in blocks] == [True, False, False]
    assert "1 broken" in next(block for block in blocks if "rank 1" in block)


def test_what_one_process_has_measured_no_other_needs_to(memscope: Run, run_folder: Path) -> None:
    assert memscope("check", run_folder, *limits(f"{UPLOADS} <= 9")).code == 0
    alone = run_folder / "2.mscope"
    assert memscope("check", alone, *limits("host.rss_bytes.peak > 0")).code == 1
    assert memscope("check", run_folder, *limits("host.rss_bytes.peak > 0")).code == 1


def test_a_baseline_of_all_ranks(memscope: Run, run_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    memscope("check", run_folder, "--write-baseline", path)
    text = path.read_text()
    assert '["rank 0"]' in text
    assert '["rank 1"]' in text
    assert memscope("check", run_folder, "--baseline", path).code == 0
    data = json.loads(memscope("check", run_folder, "--baseline", path, "--json").out)
    named = [[each["limit"] for each in run["limits"] if each["is_named"]] for run in data]
    assert f"{UPLOADS} <= 8 layers + 5 % (baseline)" in named[0]
    assert f"{UPLOADS} <= 9 layers + 5 % (baseline)" in named[1]


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


def test_list_names_every_metric_and_reading(memscope: Run) -> None:
    found = memscope("check", "--list")
    assert found.code == 0
    lines = found.out.splitlines()
    for row in METRICS:
        (line,) = [line for line in lines if line.startswith(f"  {row.name} (")]
        assert row.unit in line
        assert all(default.limit in line for default in row.limits)
        assert " ".join(row.advice.split()) in " ".join(found.out.split())
    for reading_name in READINGS:
        assert f"  {reading_name.name} " in found.out
    assert max(map(len, lines)) <= 100


def test_no_recording_is_wrong_use(memscope: Run) -> None:
    assert memscope("check").code == 2


def test_a_run_out_of_memory_breaks_its_default(memscope: Run, tmp_path: Path) -> None:
    rows = [fact("run.kind", "q8-decode"), event(9), event(28, 5, bytes=10)]
    path = write_recording(tmp_path / "oom.mscope", rows)
    assert memscope("check", path).code == 1


def test_a_baseline_that_says_nothing_here_does_not_pass(
    memscope: Run, whole: Path, baseline: Path
) -> None:
    lines = baseline.read_text().replace('device = "host"', 'device = "H200"').splitlines()
    kept = [line for line in lines if not line.startswith('"') or "memory.peak_bytes" in line]
    baseline.write_text("\n".join(kept))
    found = memscope("check", whole, "--baseline", baseline)
    assert found.code == 2
    assert "another class of machine" in found.err


def test_a_program_that_measured_nothing_has_no_baseline(memscope: Run, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "empty.mscope", [])
    found = memscope("check", path, "--write-baseline", tmp_path / "b.toml")
    assert (found.code, "Nothing was measured" in found.err) == (2, True)


def test_files_of_a_run_that_are_left_out_are_named(memscope: Run, whole: Path) -> None:
    (whole.parent / "torn.mscope").write_bytes(b"torn")
    found = memscope("check", whole.parent, *limits(KEPT))
    assert "1 file has no header and is ignored: torn.mscope" in found.err
