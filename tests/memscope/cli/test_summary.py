"""`memscope summary`: what it says first, up to which moment, and of whom."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from memscope.analysis.timeline.read import read_timeline
from memscope.events import Kind
from memscope.format.header import new_header
from memscope.reader.recording import open_recording
from tests.memscope.analysis.build import Event, event, fact
from tests.memscope.analysis.sweeps import run_sweeps
from tests.memscope.cli.recordings import damage_batch, write_recording
from tests.memscope.cli.verb_run import Run


def test_a_complete_recording(memscope: Run, whole: Path) -> None:
    found = memscope("summary", whole)
    lines = found.out.splitlines()
    assert found.code == 0
    assert lines[1].startswith("state      complete: ")
    assert "  residency.uploads_per_step     8 layers" in lines
    assert "memory (host)" in lines
    assert "partial" not in found.out.lower()
    assert not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize("kind", ["cut", "damaged"])
def test_partial_is_said_wherever_metrics_are(
    memscope: Run, whole: Path, cut: Path, kind: str
) -> None:
    damage_batch(whole)
    found = memscope("summary", {"cut": cut, "damaged": whole}[kind])
    assert found.code == 3
    assert f"state      {kind}: " in found.out
    for title in ("PARTIAL", "residency (partial)", "limits that hold (partial)"):
        assert title in found.out


def test_a_recording_that_is_still_written_is_not_partial(memscope: Run, cut: Path) -> None:
    with open(cut, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = memscope("summary", cut)
    assert found.code == 0
    assert "state      running: " in found.out


def test_steps_of_other_signs_are_left_out(memscope: Run, tmp_path: Path) -> None:
    rows = [fact("run.step_source", "second")]
    rows += [event(Kind.STEP, at, step=at, duration_ns=1) for at in range(3)]
    rows += [fact("run.step_source", "optimizer")]
    rows += [event(Kind.STEP, at, step=at, duration_ns=1) for at in range(4, 9)]
    path = write_recording(tmp_path / "run.mscope", rows)
    words = "steps      5 optimizer steps (the first is warm-up). 3 steps before them are ignored."
    assert words in memscope("summary", path).out
    assert "(5 steps ended; " in memscope("explain", path).out
    seconds = write_recording(tmp_path / "seconds.mscope", rows[:4])
    assert "(3 seconds; " in memscope("explain", seconds).out
    second = write_recording(tmp_path / "second.mscope", rows[:2])
    assert "(1 second; " in memscope("explain", second).out
    one = write_recording(tmp_path / "one.mscope", rows[4:6])
    assert "(1 step ended; " in memscope("explain", one).out


def test_json_says_the_same(memscope: Run, whole: Path) -> None:
    data = json.loads(memscope("summary", whole, "--json").out)
    assert data["state"] == "complete"
    assert data["metrics"]["residency.uploads_per_step"] == {"value": 8.0, "unit": "layers"}


@pytest.mark.parametrize(
    ("at", "events", "steps"),
    [
        ("batch:0", 0, 0),
        ("batch:2", 80, 1),
        ("step:0", None, 1),
        ("step:2", None, 3),
        ("end", None, 5),
        ("peak", None, 2),  # past holds 2 keep from the second sweep on
        ("0s", 5, 0),
    ],
)
def test_at(memscope: Run, whole: Path, at: str, events: int | None, steps: int) -> None:
    data = json.loads(memscope("summary", whole, "--at", at, "--json").out)
    assert data["steps"] == steps
    assert events is None or data["events"] == events


def test_peak_by_driver_calls_alone(memscope: Run, tmp_path: Path) -> None:
    """Host RSS is highest long before; steps and torch tell nothing."""
    device = {"name": "host", "kind": "host", "total_bytes": 1 << 30, "limit_bytes": 1 << 30}
    rows = [fact("device.0", device)]
    rows += [event(Kind.SAMPLE, 1, name="host.rss_bytes", bytes=1 << 30)]
    rows += [event(Kind.DEVICE_MALLOC, at * 10**9, bytes=100) for at in (1, 2)]
    rows += [event(Kind.DEVICE_FREE, 3 * 10**9, bytes=100)]
    path = write_recording(tmp_path / "run.mscope", rows)
    (ledger,) = json.loads(memscope("summary", path, "--at", "peak", "--json").out)["ledger"]
    held = {line["key"]: line["bytes"] for line in ledger["lines"]}
    assert (held["raw"], ledger["at_s"]) == (200, 2.0)


def test_the_moment_stands_in_the_summary(memscope: Run, whole: Path) -> None:
    assert "up to      batch:2 (2 of " in memscope("summary", whole, "--at", "batch:2").out


@pytest.mark.parametrize("at", ["batch", "batch:-1", "step:x", "12", "-3s", "1e99s", "noon"])
def test_no_moment(memscope: Run, whole: Path, at: str) -> None:
    found = memscope("summary", whole, f"--at={at}")
    assert found.code == 2
    assert "is not a moment of a recording. Use --at" in found.err


@pytest.mark.parametrize("verb", ["summary", "report"])
@pytest.mark.parametrize(
    ("at", "problem"),
    [
        ("step:300", "There is no step 300: the last step is 4."),
        ("batch:300", "There is no batch 300: the last batch is {batches}."),
        ("1h", "There is no moment 3600 s: the recording ends at 1.25 s."),
    ],
)
def test_past_the_end_is_no_moment(
    memscope: Run, tmp_path: Path, verb: str, at: str, problem: str
) -> None:
    rows = [*run_sweeps("past", 12, 4), event(Kind.MARK, 1_250_000_000, name="late")]
    path = write_recording(tmp_path / "run.mscope", rows)
    with open_recording(path) as recording:
        words = problem.format(batches=recording.state.batches)
    found = memscope(verb, path, "--at", at)
    assert (found.code, found.out) == (2, "")
    assert found.err == f"memscope: {words} Name an earlier moment, or --at end.\n"


def test_the_end_that_is_named_is_a_moment_of_a_long_recording(
    memscope: Run, tmp_path: Path
) -> None:
    late = event(Kind.MARK, 123_456_789_987_654, name="late")
    path = write_recording(tmp_path / "run.mscope", [late])
    found = memscope("summary", path, "--at", "123457.5s")
    assert "There is no moment 123457.5 s: the recording ends at 123456.789 s." in found.err
    assert memscope("summary", path, "--at", "123456.789s").code == 0


def test_the_end_itself_is_a_moment(memscope: Run, whole: Path) -> None:
    with open_recording(whole) as recording:
        batches, last_ns = recording.state.batches, read_timeline(recording).last_ns
    for at in (f"batch:{batches}", f"{last_ns}ns", "step:4"):
        assert memscope("summary", whole, "--at", at).code == 0


def test_a_process_that_ended_before_is_shown_at_its_end(
    memscope: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMSCOPE_RUN_ID", "one")
    (tmp_path / "run").mkdir()
    for rank, left_out in enumerate((40, 0)):
        monkeypatch.setenv("RANK", str(rank))
        rows = run_sweeps("past", 12, 2)
        write_recording(tmp_path / "run" / f"{rank}.mscope", rows[: len(rows) - left_out])
    assert memscope("report", "run", "--at", "step:4").code == 0
    data = json.loads(memscope("summary", "run", "--at", "step:4", "--json").out)
    assert [each["summary"]["steps"] for each in data["processes"]] == [4, 5]
    found = memscope("summary", "run", "--at", "step:5")
    assert (found.code, found.out) == (2, "")
    assert "the last step is 4" in found.err


def test_an_empty_recording(memscope: Run, tmp_path: Path) -> None:
    found = memscope("summary", write_recording(tmp_path / "empty.mscope", []))
    assert found.code == 0
    assert "No step has ended" in found.out
    assert "pass" not in found.out


def test_names_cannot_drive_the_terminal(memscope: Run, tmp_path: Path) -> None:
    name = "\x1b[2Jevil\r\n\u202egeometry\x07"
    rows = [
        fact("model", {"name": name, "layers": 2}),
        fact("policy", {"policy": name, "keep": [1] * 500}),
        fact("device.0", {"name": name, "kind": name}),
        fact("versions", {name: name}),
        fact("recorder.stopped", {"reason": name}),
        event(Kind.POOL_HIT, 1, step=1, name=name),
        event(Kind.STEP, 2, step=0),
        event(Kind.STEP, 3, step=1),
        event(Kind.DROPPED, 4, name=name, value=1.0, data={"kind": name}),
    ]
    out = memscope("summary", write_recording(tmp_path / "evil.mscope", rows)).out
    assert "evil" in out
    assert not any(ord(character) < 32 and character != "\n" for character in out)
    assert "\u202e" not in out


@pytest.mark.parametrize(
    "data", [None, 3, "x", [1], {"layers": 10**30, "weights_bytes": 10**400, "name": [{}]}]
)
def test_odd_facts_do_no_harm(memscope: Run, tmp_path: Path, data: object) -> None:
    keys = ("model", "policy", "plan", "device.0", "versions", "run.warmup_steps", "run.kind")
    rows = [*run_sweeps("past", 4, 2), *(fact(key, data) for key in keys)]
    rows.append(event(Kind.OOM, 9, bytes=2**63 - 1, data={"free": 10**400}))
    path = write_recording(tmp_path / "odd.mscope", rows)
    assert memscope("summary", path).code == 0
    json.loads(memscope("summary", path, "--json").out)


def test_deep_facts_do_no_harm(memscope: Run, tmp_path: Path) -> None:
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    path = write_recording(tmp_path / "deep.mscope", [fact("deep", deep), fact("device.0", deep)])
    assert memscope("summary", path).code == 0
    assert memscope("summary", path, "--json").code == 0


def program_on_the_host(path: Path, *more: Event) -> Path:
    """Steps, and the memory of the process, as a program without a GPU leaves them."""
    steps = [event(Kind.STEP, 1000 * number, step=number) for number in range(1, 5)]
    rss = event(Kind.SAMPLE, 10, name="host.rss_bytes", bytes=300 << 20)
    return write_recording(path, [fact("run.kind", "program"), rss, *steps, *more])


def test_of_a_program_without_a_gpu_what_is_known_stands_out(memscope: Run, tmp_path: Path) -> None:
    path = program_on_the_host(tmp_path / "run.mscope")
    out, everything = memscope("summary", path).out, memscope("summary", path, "--all").out
    metrics = json.loads(memscope("summary", path, "--json").out)["metrics"]
    missing = {name for name, metric in metrics.items() if metric["value"] is None}
    assert "device     no GPU was recorded\n" in out
    assert f"\n{len(missing)} metrics have no value (" in out
    assert "--all" not in everything
    for name, metric in metrics.items():
        assert (name in out) is (name not in missing), name
        assert name in everything
        assert name not in missing or metric["reason"] in everything


def test_reasons_of_other_metrics_stay(memscope: Run, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "run.mscope", [event(Kind.MARK, 1, name="up")])
    out = memscope("summary", path, "--all").out
    assert "  host.peak_bytes\n    host.rss_bytes is not sampled\n" in out
    assert "  oom.engine_count\n    nothing in this program records out-of-memory errors\n" in out


@pytest.mark.parametrize(
    "seen",
    [
        fact("cuda.0", {"name": "H200", "kind": "cuda", "total_bytes": 80 << 30}),
        event(Kind.DEVICE_MALLOC, 5, step=2, bytes=1 << 20, name="mine"),
        event(Kind.UPLOAD, 5, step=2, layer=0, bytes=1 << 20),
    ],
)
def test_where_anything_is_known_of_a_device_each_has_its_reason(
    memscope: Run, tmp_path: Path, seen: Event
) -> None:
    out = memscope("summary", program_on_the_host(tmp_path / "run.mscope", seen), "--all").out
    assert "no GPU was recorded" not in out
    assert "torch's allocator counters are not sampled" in out


def test_processes_without_a_gpu_list_nothing_twice(memscope: Run, tmp_path: Path) -> None:
    for pid, name in ((100, "run.mscope"), (200, "run.200.mscope")):
        header = new_header() | {"run_id": "a", "pid": pid}
        write_recording(tmp_path / name, [event(Kind.MARK, 1, name="up")], header=header)
    short = memscope("summary", tmp_path / "run.mscope").out
    assert short.count("no GPU was recorded") == 2
    assert short.count(" have no value ") == 1
    assert "memory.peak_bytes" not in short
    out = memscope("summary", tmp_path / "run.mscope", "--all").out
    assert out.count("memory.peak_bytes") == 1
    assert out.count("host.rss_bytes is not sampled") == 1


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"name": "H200", "total_bytes": 80 << 30}, "2 × H200, 80.0 GiB each"),
        (
            {"name": "A100", "total_bytes": 40 << 30},
            "H200 and 1 more, 80.0 GiB and 40.0 GiB",
        ),
    ],
)
def test_several_devices_are_named(
    memscope: Run, tmp_path: Path, second: dict[str, object], words: str
) -> None:
    first = {"name": "H200", "kind": "cuda", "total_bytes": 80 << 30}
    rows = [fact("cuda.0", first), fact("cuda.1", {"kind": "cuda"} | second)]
    out = memscope("summary", write_recording(tmp_path / "two.mscope", rows)).out
    assert f"device     {words}\n" in out
