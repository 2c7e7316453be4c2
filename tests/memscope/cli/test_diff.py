from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from tests.memscope.analysis.build import fact
from tests.memscope.analysis.sweeps import run_sweeps
from tests.memscope.analysis.torch_runs import GIB, run_program
from tests.memscope.cli.recordings import write_recording
from tests.memscope.cli.verb_run import Run
from tests.memscope.fake_allocator import MIB, FakeAllocator
from tests.paths import DATA

CASES = DATA / "snapshots"


def dump(path: Path, *, cache: int, leak: int = 0, stream: int = 0, history: bool = True) -> Path:
    """A snapshot of 100 MiB of weights, a cache and a leak."""
    allocator = FakeAllocator()
    allocator.alloc(100 * MIB, by="weights")
    allocator.label = "layer 3"
    if cache:
        allocator.alloc(cache, by="cache", stream=stream)
    for _ in range(leak):
        allocator.alloc(2 * MIB, by="leak")
    data = allocator.snapshot()
    if not history:
        data["device_traces"] = []
    path.write_bytes(pickle.dumps(data))
    return path


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return dump(tmp_path / "before.pickle", cache=50 * MIB)


@pytest.fixture
def after(tmp_path: Path) -> Path:
    return dump(tmp_path / "after.pickle", cache=20 * MIB, leak=40)


def test_holders_stand_with_the_largest_growth_first(
    memscope: Run, before: Path, after: Path
) -> None:
    found = json.loads(memscope("diff", before, after, "--json").out)
    stacks = [(each["name"].split()[0], each["value"]) for each in found["holders"]["stack"]]
    assert stacks == [("leak", 80 * MIB), ("cache", -30 * MIB)]
    assert [each["value"] for each in found["holders"]["label"]] == [50 * MIB]
    assert found["metrics"]["diff.allocated_bytes"]["value"] == 50 * MIB
    assert (found["kind"], found["state"]) == ("snapshots", "complete")


def test_a_loss_has_one_minus_sign_in_both_columns(
    memscope: Run, before: Path, after: Path
) -> None:
    text = memscope("diff", before, after).out
    assert "−30.0 MiB  −60.0%" in text


def test_stream_that_is_new_is_named(memscope: Run, before: Path, tmp_path: Path) -> None:
    other = dump(tmp_path / "other.pickle", cache=50 * MIB, stream=0x55)
    found = json.loads(memscope("diff", before, other, "--json").out)
    streams = {each["name"]: each["value"] for each in found["holders"]["stream"]}
    assert streams == {"stream 0x55": 50 * MIB, "the default stream": -50 * MIB}


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("diff.peak_bytes <= 50 MiB", 0),
        ("diff.peak_bytes <= 49.9 MiB", 1),
        ("diff.peak_bytes < 50 MiB", 1),
        ("diff.allocated_bytes >= -1 GiB", 0),
        ("diff.reserved_bytes == 0", 1),
    ],
)
def test_limit_decides_the_exit_code(
    memscope: Run, before: Path, after: Path, limit: str, code: int
) -> None:
    outcome = memscope("diff", before, after, "--limit", limit)
    assert outcome.code == code, outcome.out
    assert limit in outcome.out


def test_same_snapshot_has_no_difference(memscope: Run, after: Path) -> None:
    outcome = memscope("diff", after, after, "--limit", "diff.peak_bytes == 0")
    assert outcome.code == 0
    assert "live memory" not in outcome.out


def test_peak_without_history_is_not_measured(memscope: Run, before: Path, tmp_path: Path) -> None:
    bare = dump(tmp_path / "bare.pickle", cache=0, history=False)
    outcome = memscope("diff", before, bare, "--limit", "diff.peak_bytes <= 1 GiB")
    assert outcome.code == 1
    assert "not measured" in outcome.out
    assert "the snapshot has no history" in outcome.out
    assert memscope("diff", before, bare).code == 0


def test_recordings_are_compared_by_metric(memscope: Run, whole: Path, tmp_path: Path) -> None:
    other = write_recording(tmp_path / "other.mscope", run_sweeps("past", 12, 2))
    found = json.loads(memscope("diff", whole, other, "--json").out)
    assert found["kind"] == "recordings"
    change = found["metrics"]["diff.residency.uploads_per_step"]
    assert (change["before"], change["after"], change["value"]) == (8.0, 10.0, 2.0)
    broken = memscope("diff", whole, other, "--limit", "diff.uploads_per_step <= 1 layers")
    assert broken.code == 1
    held = memscope("diff", whole, other, "--limit", "diff.residency.uploads_per_step <= 2")
    assert held.code == 0


def test_a_ratio_changes_by_points(memscope: Run, tmp_path: Path) -> None:
    """Half of it, then three quarters: 25 points more, which are 50 % of what it was."""
    before, after = (
        write_recording(
            tmp_path / f"{size}.mscope",
            run_program(20, lambda step: GIB, lambda step, size=size: size * GIB),
        )
        for size in (2, 4)
    )
    limit = "diff.allocator.cache_ratio <= 20 %"
    outcome = memscope("diff", before, after, "--limit", limit)
    words = " ".join(outcome.out.split())
    assert "allocator.cache_ratio +25.0 points +50.0% 50.0% → 75.0%" in words
    assert f"fail  {limit}  25.0 points" in outcome.out
    metrics = json.loads(memscope("diff", before, after, "--json").out)["metrics"]
    change = metrics["diff.allocator.cache_ratio"]
    assert (change["value"], change["unit"]) == (pytest.approx(0.25), "ratio")


def test_partial_recording_is_said(memscope: Run, whole: Path, cut: Path) -> None:
    outcome = memscope("diff", whole, cut)
    assert outcome.code == 3
    assert "metrics (partial)" in outcome.out
    broken = memscope("diff", whole, cut, "--limit", "diff.uploads_per_step < 0")
    assert broken.code == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["{before}", "{whole}"], "is a snapshot and"),
        (["{before}", "nothing"], "cannot be read"),
        (["{before}", "{before}", "--limit", "peak <= 3"], "is not a limit on a difference"),
        (["{before}", "{before}", "--limit", "diff.peak_bytes"], "is not a limit on a difference"),
        (
            ["{before}", "{before}", "--limit", "diff.colour <= 3"],
            "is not a metric of this difference",
        ),
        (["{before}", "{before}", "--limit", "diff.peak_bytes <= 3 s"], "is measured in bytes"),
        (
            ["{before}", "{junk}"],
            "junk is neither a recording nor a torch memory snapshot. Name",
        ),
        (["{whole}", "{junk}"], "junk is neither a recording nor a torch memory snapshot. Name"),
    ],
)
def test_wrong_use_is_one_sentence(
    memscope: Run, before: Path, whole: Path, tmp_path: Path, words: list[str], problem: str
) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(b"hello")
    places = {"before": before, "whole": whole, "junk": junk}
    outcome = memscope("diff", *(word.format(**places) for word in words))
    assert outcome.code == 2
    assert problem in outcome.err
    assert outcome.err.count("\n") == 1
    assert outcome.out == ""


def test_names_from_a_file_obey_nothing(memscope: Run, before: Path, tmp_path: Path) -> None:
    data = pickle.loads(before.read_bytes())
    data["segments"][0]["blocks"][0]["frames"] = [
        {"name": "\x1b[2Jboo", "filename": "x.py", "line": 1}
    ]
    bad = tmp_path / "bad.pickle"
    bad.write_bytes(pickle.dumps(data))
    outcome = memscope("diff", before, bad)
    assert "boo" in outcome.out
    assert "\x1b" not in outcome.out


def test_recorded_cases_differ_as_known(memscope: Run) -> None:
    found = memscope("diff", CASES / "shortage.pickle", CASES / "leak.pickle", "--json").out
    metrics = json.loads(found)["metrics"]
    assert metrics["diff.reserved_bytes"]["value"] == 689_963_008 - 3_758_096_384
    assert metrics["diff.allocated_bytes"]["value"] == 335_544_320 - 3_758_096_384


def test_growth_a_step_is_not_set_against_growth_a_second(memscope: Run, tmp_path: Path) -> None:
    rows = run_program(600, lambda step: GIB + MIB * step, lambda step: 2 * GIB)
    before = write_recording(tmp_path / "a.mscope", [fact("run.step_source", "second"), *rows])
    after = write_recording(tmp_path / "b.mscope", rows)
    found = json.loads(memscope("diff", before, after, "--json").out)
    growth = found["metrics"]["diff.growth.allocated"]
    assert (growth["value"], growth["reason"]) == (None, "in bytes/s in the first recording")
    assert "in bytes/s in the first recording" in memscope("diff", before, after).out
    found = json.loads(memscope("diff", before, before, "--json").out)
    assert found["metrics"]["diff.growth.allocated"]["unit"] == "bytes/s"
