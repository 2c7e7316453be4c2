"""What a recorded error with its map comes to: as the same request's snapshot does."""

from __future__ import annotations

import io
import json
import pickle
from dataclasses import replace
from typing import Any

import pytest

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.recording.explain import explain_run, explain_timeline
from memscope.analysis.memory_map.memory_map import map_at_end
from memscope.analysis.memory_map.recorded_map import recorded_map
from memscope.analysis.summary.summary import summarize
from memscope.analysis.timeline.timeline import Timeline
from memscope.cli.text.explanation import explanation_lines
from memscope.events import Kind
from memscope.interop.oom_log.formats.torch_message import TorchMessage
from memscope.interop.oom_log.reader import read_log
from memscope.interop.snapshot.snapshot import ALLOCATED, check_snapshot
from memscope.probes.torch.allocator_map import emit_map
from memscope.reader.state import State, StateName
from tests.fakes import ListRecorder
from tests.memscope.analysis.build import Event, event, fact, fold
from tests.paths import DATA

CASES = DATA / "snapshots"
COMPLETE = State(StateName.COMPLETE, 1, 1, 0, 0)
CUT = State(StateName.CUT, 1, 1, 0, 0)
MIB, GIB = 1 << 20, 1 << 30
AT = 7_000_000_000
# Of these the map still stands in the dump as it stood at the error; growth has a test of its own.
FAILED = (
    "expandable_oom",
    "fragmented",
    "full_card",
    "graph_pool",
    "huge_request",
    "other_stream",
    "private_pool",
    "shortage",
)


def case(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The dump, and what is known of it."""
    data = pickle.loads((CASES / f"{name}.pickle").read_bytes())
    return data, json.loads((CASES / f"{name}.json").read_text())


def map_rows(snapshot: dict[str, Any], *, device: int = 0) -> list[Event]:
    recorder = ListRecorder()
    emit_map(recorder, snapshot, device=device, at_ns=AT, torch_version="2.11.0+cu130")  # type: ignore[arg-type]
    names = ("name", "bytes", "value", "data", "address", "device", "stream")
    return [
        event(row.kind, row.at_ns or AT, **{name: getattr(row, name) for name in names})
        for row in recorder.rows
    ]


def error_row(text: str, stream: int = 0, *, t_ns: int = AT) -> Event:
    """The observer's row of the error whose message is ``text``."""
    (found,) = read_log(io.BytesIO(text.encode())).findings
    message = found.message
    assert isinstance(message, TorchMessage)
    assert message.requested
    assert message.reserved or message.allocated
    names = ("free", "total", "allocated", "reserved", "limit")
    sizes_bytes = {
        name: size.bytes for name in names if (size := getattr(message, name)) is not None
    }
    data = {"scope": "engine", "source": "observer", **sizes_bytes}
    return event(Kind.OOM, t_ns, bytes=message.requested.bytes, device=0, stream=stream, data=data)


def rows_of(name: str) -> list[Event]:
    data, known = case(name)
    last = next(each for each in reversed(data["device_traces"][0]) if each["action"] == "oom")
    return [error_row(known["message"], last["stream"]), *map_rows(data)]


def explain(rows: list[Event], state: State = COMPLETE, *, split: int = 0) -> Explanation:
    return explain_timeline(fold(rows, split=split), state)


@pytest.mark.parametrize("name", FAILED)
def test_diagnosis_is_that_of_the_snapshot(name: str) -> None:
    explanation = explain(rows_of(name))
    assert explanation.diagnosis in case(name)[1]["diagnosis"].split("|")
    assert explanation.source == "recording"
    assert explanation.bar_bytes in (
        explanation.sizes_bytes["total"],
        explanation.sizes_bytes.get("limit"),
    )


def test_map_gives_picture_pins_and_holders() -> None:
    explanation = explain(rows_of("fragmented"))
    text = "\n".join(explanation_lines(explanation))
    for part in ("segments when the request failed", "that pin", "external", "by call stack"):
        assert part in text
    found = explanation.to_json()
    assert found["largest_free_block_bytes"] == 64 * MIB
    assert found["pins"][0]["holders"]
    assert "largest usable one has 64.0 MiB" in explanation.why


def test_card_tells_apart_what_torch_does_not_use() -> None:
    rows = rows_of("graph_pool")
    found = recorded_map(fold(rows))
    assert found is not None
    memory = found.memory
    rows[0]["data"] |= {
        "reserved": memory.reserved_bytes,
        "allocated": memory.bytes_in(ALLOCATED),
    }
    explanation = explain(rows)
    names = {share.name: share.bytes for share in explanation.shares}
    assert explanation.diagnosis == "private_pools"
    assert names["torch, free in private pools"] >= 3 * GIB
    assert "torch, cached" not in names


@pytest.mark.parametrize("split", [0, 1, 7])
def test_map_is_the_snapshots_own_however_it_is_cut_into_batches(split: int) -> None:
    data, _ = case("expandable_oom")
    found = recorded_map(fold(map_rows(data), split=split))
    assert found is not None
    want = map_at_end(check_snapshot(data, 1 << 30), 0)
    assert sorted(found.memory.blocks.address) == sorted(want.blocks.address)
    assert found.memory.reserved_bytes == want.reserved_bytes
    assert found.memory.bytes_in(ALLOCATED) == want.bytes_in(ALLOCATED)
    assert found.snapshot.segments.is_expandable.all()


def test_recording_without_history_says_so() -> None:
    data, known = case("fragmented")
    for segment in data["segments"]:
        for block in segment["blocks"]:
            block["frames"] = []
    owners = fact("probe.oom", {"owners": "--history was off"})
    explanation = explain([owners, error_row(known["message"]), *map_rows(data)])
    assert "who allocated what: --history was off" in explanation.unknown
    assert "no call stack was recorded" not in explanation.why


def test_segment_that_lost_a_block_is_left_out_and_said() -> None:
    rows = rows_of("shortage")
    lost = next(i for i, row in enumerate(rows) if row["kind"] == Kind.BLOCK)
    found = recorded_map(fold(rows[:lost] + rows[lost + 1 :]))
    assert found is not None
    assert (found.left_out_segments, found.left_out_bytes) == (1, 512 * MIB)
    explanation = explain(rows[:lost] + rows[lost + 1 :])
    assert "1 segments with 512.00 MiB are missing from the map." in explanation.notes


def test_later_map_replaces_the_earlier_one() -> None:
    earlier = [{**row, "t_ns": 5} for row in map_rows(case("fragmented")[0])]
    found = recorded_map(fold([*earlier, *map_rows(case("shortage")[0])], split=10))
    assert found is not None
    assert len(found.memory.segments) == 7


def test_last_error_is_explained_where_it_is_another() -> None:
    text = case("fragmented")[1]["message"]
    alike = [*rows_of("fragmented"), *[error_row(text, t_ns=AT + 1)] * 29]
    found = explain(alike)
    assert "the one with the map" in " ".join(found.notes)
    assert "30 out-of-memory errors" in " ".join(found.notes)
    other = case("shortage")[1]["message"].replace("3.50 GiB is alloc", "3.99 GiB is alloc")
    rows = [*rows_of("fragmented"), error_row(other.replace("512.00 MiB", "0 bytes"), t_ns=AT + 1)]
    assert "the last one" in " ".join(explain(rows).notes)


def leak(steps: int = 40) -> list[Event]:
    """Each step keeps 90 MiB; then 500 MiB are asked for."""
    rows = [fact("run.step_source", "program")]
    for step in range(steps):
        for reading in range(4):
            level = (100 + 90 * step) * MIB
            at_ns = step * 10**8 + reading * 10**7
            for name in ("torch.allocated_bytes", "torch.reserved_bytes"):
                rows.append(event(Kind.SAMPLE, at_ns, name=name, bytes=level, device=0))
        rows.append(event(Kind.STEP, step * 10**8 + 9 * 10**7, step=step, duration_ns=10**8))
    held = 4 * GIB - 300 * MIB
    data = {"scope": "engine", "source": "observer", "free": 300 * MIB, "total": 4 * GIB}
    data |= {"allocated": held, "reserved": held}
    return [*rows, event(Kind.OOM, AT, bytes=500 * MIB, device=0, data=data)]


def test_what_steps_kept_is_growth() -> None:
    explanation = explain(leak())
    assert explanation.diagnosis == "growth"
    assert "90.00 MiB a step" in explanation.why


def test_growth_of_another_device_explains_nothing() -> None:
    *grown, last = leak()
    steady = [
        row | {"device": 1, "bytes": GIB} if row["kind"] == Kind.SAMPLE else row for row in grown
    ]
    of_other = [row for row in grown if row["kind"] == Kind.SAMPLE]
    rows = sorted([*steady, *of_other], key=lambda row: row["t_ns"])
    assert explain([*rows, last | {"device": 1}]).diagnosis == "shortage"
    assert explain([*rows, last]).diagnosis == "growth"


def test_seconds_are_no_steps() -> None:
    rows = [fact("run.step_source", "second"), *leak()[1:]]
    assert explain(rows).diagnosis == "shortage"


def exception_row(text: str) -> Event:
    return event(Kind.OOM, 9, data={"scope": "engine", "source": "exception", "error": text})


@pytest.mark.parametrize(
    ("text", "diagnosis"),
    [
        ("MemoryError", "not_device_memory"),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
         "allocate memory: you tried to allocate 4000000000000 bytes.", "not_device_memory"),
        ('RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "CUDACachingAllocator.cpp":995,'
         " please report a bug to PyTorch.", "nvml_unavailable"),
        ("AcceleratorError: CUDA error: out of memory", "unknown"),
    ],
)  # fmt: skip
def test_exception_is_explained_as_in_a_log(text: str, diagnosis: str) -> None:
    explanation = explain([exception_row(text)])
    assert explanation.diagnosis == diagnosis
    assert "by its exception alone" in explanation.notes[-1]


def settings_of(rows: list[Event], text: str = "MemoryError") -> list[str]:
    return [each.setting for each in explain([*rows, exception_row(text)]).help]


NO_GROUP = fact("cgroup", {"version": 2, "limit_bytes": None})
LIMITED = fact("host.limits", {"address_space_bytes": 6_144_000_000})
UNLIMITED = fact("host.limits", {"address_space_bytes": None})
RESIDENT = event(Kind.SAMPLE, 5, name="host.rss_bytes", bytes=4331 * MIB)


@pytest.mark.parametrize(
    "text", ["MemoryError", "RuntimeError: DefaultCPUAllocator: can't allocate memory"]
)
def test_limit_of_the_address_space_is_named_where_it_was_set(text: str) -> None:
    explanation = explain([LIMITED, NO_GROUP, RESIDENT, exception_row(text)])
    assert "limited to 5.72 GiB (RLIMIT_AS, ulimit -v)" in explanation.why
    assert "4.23 GiB of it was resident at the last reading" in explanation.why
    assert explanation.sizes_bytes["limit"] == 6_144_000_000
    first, *others = explanation.help
    assert (first.setting, first.reason) == ("ulimit -v unlimited, or higher", "it was 5.72 GiB")
    assert not [each for each in others if "container" in each.setting or "ulim" in each.setting]
    assert "how much host memory there was" not in explanation.unknown


def test_limits_that_were_not_there_are_not_advised() -> None:
    for setting in settings_of([UNLIMITED, NO_GROUP]):
        assert "container" not in setting
        assert "ulimit" not in setting
    group = fact("cgroup", {"version": 2, "limit_bytes": 1000 * MIB})
    explanation = explain([UNLIMITED, group, exception_row("MemoryError")])
    assert explanation.help[0].reason.startswith("it was 1000.00 MiB")
    assert "ulimit" not in str(explanation)


def test_limits_that_nobody_read_stay_possible() -> None:
    explanation = explain([exception_row("MemoryError")])
    shown = [each.setting for each in explanation.help]
    assert "a higher memory limit of the container" in shown
    assert "ulimit -v unlimited, where it is not" in shown
    assert "RLIMIT_AS" in explanation.unknown[-1]


def host_rows(used: int, own: int, kills: int = 0) -> list[Event]:
    return [
        fact("cgroup", {"version": 2, "limit_bytes": 1000 * MIB}),
        fact("cgroup.events", {"oom_kill": kills}),
        event(Kind.SAMPLE, 1, name="cgroup.used_bytes", bytes=used * MIB),
        event(Kind.SAMPLE, 1, name="host.rss_bytes", bytes=own * MIB),
    ]


def test_cut_recording_at_the_limit_of_its_group_says_killed() -> None:
    explanation = explain(host_rows(990, 900), CUT)
    assert explanation.diagnosis == "not_device_memory"
    assert "Killed; host memory was at 99 % of its limit" in explanation.why


@pytest.mark.parametrize(
    ("text", "diagnosis"),
    [
        ("RuntimeError: could not avoid CUDA out of memory", "unknown"),
        ("OutOfMemoryError", "unknown"),
        ("_ArrayMemoryError", "not_device_memory"),
        ("MemoryError: ", "not_device_memory"),
    ],
)
def test_an_exception_that_no_rule_reads_is_of_the_host_by_its_class_alone(
    text: str, diagnosis: str
) -> None:
    assert explain([exception_row(text)]).diagnosis == diagnosis


@pytest.mark.parametrize(
    ("rows", "state"),
    [(host_rows(990, 100), CUT), (host_rows(500, 450), CUT), (host_rows(990, 900), COMPLETE)],
    ids=["cached files", "room left", "not cut"],
)
def test_nothing_is_claimed_without_proof(rows: list[Event], state: State) -> None:
    assert explain(rows, state).diagnosis is None


def test_summary_says_killed_and_why_memory_ran_out() -> None:
    killed = summarize(fold(host_rows(990, 900)), CUT).sentences
    assert killed[0].text.startswith("Killed; host memory was at 99 % of its limit")
    (first, *_) = summarize(fold(rows_of("fragmented")), COMPLETE).sentences
    assert first.text == f"Out of memory. {explain(rows_of('fragmented')).why}"


def test_partial_recording_is_marked() -> None:
    assert explain(rows_of("shortage"), CUT).is_partial
    assert not explain(rows_of("shortage")).is_partial


_HOSTILE: tuple[Any, ...] = (
    None,
    -1,
    2**63,
    True,
    "x",
    [],
    {"a": 1},
    [1, 2],
    [[]],
    {"state": "inactive"},
)


@pytest.mark.parametrize("value", _HOSTILE, ids=repr)
def test_hostile_rows_never_disturb(value: object) -> None:
    rows = rows_of("fragmented")
    for key in ("data", "frames", "state", "pool"):
        for row in rows:
            if row["kind"] in (Kind.SEGMENT, Kind.BLOCK, Kind.FACT):
                broken = value if key == "data" else {**row["data"], key: value}
                changed = [*rows, {**row, "data": broken, "t_ns": AT}]
                explain(changed).to_json()
                break


def test_rows_of_any_place_and_size_never_disturb() -> None:
    for field, value in (("address", 2**64 - 1), ("bytes", 2**62), ("bytes", -5), ("device", -1)):
        rows = [
            {**row, field: value} if row["kind"] in (Kind.SEGMENT, Kind.BLOCK) else row
            for row in rows_of("fragmented")
        ]
        explain(rows)


def process(rows: list[Event], pid: int, start_ns: int) -> tuple[Timeline, State]:
    timeline = fold(rows)
    timeline.header = replace(timeline.header, pid=pid, rank=pid, started_at_ns=start_ns)
    return timeline, COMPLETE


def test_run_is_explained_by_the_process_that_failed_first() -> None:
    well = [event(Kind.STEP, 5, step=0, duration_ns=1)]
    late, early = rows_of("shortage"), rows_of("fragmented")
    found = explain_run([process(well, 1, 0), process(late, 2, 900), process(early, 3, 100)])
    assert found.diagnosis == "fragmentation"
    assert found.notes[-1] == (
        "2 of 3 processes ran out of memory. This is process 3 (rank 3), the first."
    )
    found = explain_run([process(well, 1, 0), process(well, 2, 9)])
    assert found.diagnosis is None
    assert found.notes[-1] == "None of 2 processes ran out of memory."
