"""The ledger: it adds up whatever was read, and each byte is in the line of who took it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memscope.analysis.ledger.ledger import Ledger, make_ledgers
from memscope.analysis.ledger.lines import Coverage, LedgerLine
from memscope.analysis.summary.sentences import write_sentences
from memscope.analysis.summary.summary import summarize
from memscope.analysis.timeline.timeline import Timeline
from memscope.cli.text.summary import summary_lines
from memscope.events import Kind
from memscope.facts import Fact
from memscope.reader.state import State
from tests.memscope.analysis.build import Event, event, fact, fold, state
from tests.memscope.analysis.ledger.programs import READINGS, program
from tests.memscope.analysis.sweeps import run_sweeps
from tests.memscope.analysis.torch_runs import GIB, GPU, MIB, TOTAL, sample


def ledger(rows: list[Event]) -> Ledger:
    (found,) = make_ledgers(fold(rows))
    return found


def size(rows: list[Event], key: str) -> int | None:
    line = ledger(rows).find(key)
    assert line is not None, key
    return line.bytes


def assert_adds_up(found: Ledger) -> None:
    for _, line in found.lines:
        if line.parts and line.bytes is not None:
            known = [part.bytes for part in line.parts if part.bytes is not None]
            assert sum(known) == line.bytes, line.key
    leaves = [line.bytes for line in found.total.leaves if line.bytes is not None]
    assert sum(leaves) == found.total.bytes
    for _, line in found.lines:
        assert line.bytes is not None or line.reason, f"{line.key} is absent without a reason"
        assert line.is_rest or line.bytes is None or line.coverage != Coverage.ABSENT


def test_it_adds_up_to_what_nvml_says():
    found = ledger(program())
    assert_adds_up(found)
    used = found.find("used")
    assert used is not None
    assert used.bytes == 10 * GIB == sum(line.bytes or 0 for line in used.leaves)
    assert found.source == "NVML v2"


def test_each_part_is_in_its_own_line():
    rows = program()
    assert size(rows, "process.77") == 2 * GIB
    assert size(rows, "no_process") == GIB
    assert size(rows, "torch.rest") == 512 * MIB
    assert size(rows, "torch.pending") == 100 * MIB
    assert size(rows, "torch.cache") == (6 * GIB - 4 * GIB) - 400 * MIB
    assert size(rows, "context") == 518 * MIB
    assert size(rows, "unexplained") == GIB - 518 * MIB


def test_a_planted_allocation_is_in_unexplained_and_nowhere_else():
    planted = {"nvml__process_bytes": 8 * GIB, "nvml__used_bytes": 11 * GIB}
    before, after = ledger(program()), ledger(program(**planted))
    changed = {
        line.key: (line.bytes or 0) - (old.bytes or 0)
        for (_, old), (_, line) in zip(before.lines, after.lines, strict=True)
        if line.bytes != old.bytes
    }
    assert changed == {
        "free": -GIB, "used": GIB, "process": GIB, "unexplained": GIB
    }  # fmt: skip


def test_what_cupti_names_is_no_longer_unexplained():
    named = fact("cupti.outside.0", {"libraries_bytes": 64 * MIB, "modules_bytes": 90 * MIB})
    rows = program(named)
    assert size(rows, "libraries") == 64 * MIB
    assert size(rows, "modules") == 90 * MIB
    assert size(rows, "unexplained") == GIB - (518 + 64 + 90) * MIB
    assert_adds_up(ledger(rows))


def test_a_context_is_not_taken_for_known_before_it_has_grown_whole():
    def at(seconds: float, outside: int) -> list[Event]:
        t_ns = round(seconds * 1e9)
        reserved = sample("torch.reserved_bytes", t_ns, GIB)
        return [reserved, sample("nvml.process_bytes", t_ns + 1, GIB + outside)]

    rows = [row for row in program() if row.get("name") != "context.0"]
    rows = [
        row for row in rows if row.get("name") not in ("torch.reserved_bytes", "nvml.process_bytes")
    ]
    assert size([*rows, *at(0, 106 * MIB), *at(0.3, 610 * MIB)], "context") == 610 * MIB
    later = [*at(0, 106 * MIB), *at(1.5, 610 * MIB), *at(2, 700 * MIB)]
    assert size([*rows, *later], "context") == 610 * MIB
    assert size([*rows, *later], "unexplained") == 90 * MIB


LIBRARIES = {"libcublas.so.13": 64 * MIB, "cuda.bindings": 100 * MIB}


def outside(**more: Any) -> Event:
    told = {"libraries": LIBRARIES, "libraries_bytes": 164 * MIB, "cupti_bytes": 0}
    return fact("cupti.outside.0", told | {"modules_bytes": 0, "pools_bytes": 0} | more)


def test_each_library_has_a_line_of_its_own():
    rows = program(outside())
    assert size(rows, "library.libcublas.so.13") == 64 * MIB
    assert size(rows, "libraries") == 164 * MIB
    assert size(rows, "cupti") == size(rows, "stream_ordered") == 0
    assert_adds_up(ledger(rows))


def test_what_the_runner_recorded_itself_is_no_librarys():
    calls = [
        event(Kind.DEVICE_MALLOC, 1, bytes=70 * MIB),
        event(Kind.DEVICE_MALLOC, 2, bytes=50 * MIB),
    ]
    pools = {"pools": {"cuda.bindings": 20 * MIB}, "pools_bytes": 32 * MIB}
    rows = program(*calls, outside(**pools))
    assert size(rows, "raw") == 120 * MIB
    assert size(rows, "libraries") == 64 * MIB
    assert size(rows, "stream_ordered") == 12 * MIB
    assert_adds_up(ledger(rows))


def test_what_was_given_back_after_the_last_step_is_in_no_line():
    kv = event(Kind.SAMPLE, 3, step=0, name="kv.used_bytes", bytes=50 * MIB)
    taken, given = (
        event(kind, at, bytes=70 * MIB, address=1)
        for kind, at in ((Kind.DEVICE_MALLOC, 1), (Kind.DEVICE_FREE, 9))
    )
    step = event(Kind.STEP, 5, step=0, duration_ns=4)
    assert size(program(taken, kv, step), "raw.kv") == 50 * MIB
    found = ledger(program(taken, kv, step, given))
    assert found.find("raw.kv") is None
    assert found.find("raw").bytes == 0
    assert_adds_up(found)


def test_calls_that_cupti_saw_are_none_of_the_programs():
    seen = event(Kind.DEVICE_MALLOC, 1, bytes=GIB, device=0, name="libcublas.so.13")
    found = ledger(program(seen))
    assert found.find("raw") is None
    assert_adds_up(found)


def test_code_loaded_before_the_first_reading_is_told_by_a_measured_context():
    rows = program(outside(base_bytes=600 * MIB, modules_bytes=90 * MIB))
    assert size(rows, "modules") == (600 - 518 + 90) * MIB


def test_without_a_measured_context_the_first_reading_is_it():
    rows = [row for row in program(outside(base_bytes=600 * MIB)) if row.get("name") != "context.0"]
    context = ledger(rows).find("context")
    assert context is not None
    assert (context.bytes, context.coverage) == (600 * MIB, "partial")
    assert size(rows, "unexplained") == GIB - (600 + 164) * MIB


def test_a_profiler_that_held_cupti_makes_libraries_partial():
    rows = program(fact("cupti", {"given_up_s": 2.5}), outside())
    line = ledger(rows).find("libraries")
    assert line is not None
    assert "torch.profiler held CUPTI for 2.5 s" in line.reason


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        (fact("cupti.cost", {"refused_buffers": 3}), "some are lost"),
        (fact("probe.cupti", {"stopped": "CuptiError: x"}), "failed before the end: CuptiError: x"),
    ],
)
def test_lost_records_make_libraries_partial(lost: Event, reason: str):
    line = ledger(program(lost, outside())).find("libraries")
    assert line is not None
    assert line.coverage == "partial"
    assert reason in line.reason


def test_processes_without_bytes_are_not_counted_as_zero():
    def more(sizes: list[int | None]) -> LedgerLine:
        others = {str(pid): {"bytes": size} for pid, size in enumerate(sizes)}
        line = ledger(program(fact("nvml.others.0", others))).find("processes")
        assert line is not None
        return line

    assert more([None] * 18).bytes is None
    partly = more([2] * 17 + [None])
    assert (partly.bytes, partly.coverage) == (2, "partial")


@pytest.mark.parametrize("absent", ["cuda:0", ["cuda:0"], 5])
def test_a_reason_that_is_no_table_is_passed_over(absent: Any):
    assert_adds_up(ledger(program(fact("nvml", {"absent": absent}))))


def test_why_cupti_is_absent_stands_in_its_lines():
    rows = program(fact("cupti", {"absent": "another tool holds CUPTI: x"}))
    for key in ("libraries", "modules", "cupti", "stream_ordered"):
        line = ledger(rows).find(key)
        assert line is not None
        assert (line.bytes, line.reason) == (None, "another tool holds CUPTI: x")


def test_a_context_that_was_not_measured_is_the_least_seen_outside_torch():
    rows = [row for row in program() if row.get("name") != "context.0"]
    found = ledger(rows).find("context")
    assert found is not None
    assert (found.bytes, found.coverage) == (GIB, "partial")
    assert size(rows, "unexplained") == 0


def test_without_a_process_metric_one_line_is_outside_torch():
    absent = fact("nvml", {"absent": {"nvml.process_bytes": "in a container"}})
    rows = program(absent, without=("nvml.process",))
    outside = ledger(rows).find("outside")
    assert outside is not None
    assert outside.bytes == 4 * GIB
    assert "in a container" in outside.reason
    assert ledger(rows).find("process.77") is None
    assert_adds_up(ledger(rows))


def test_an_old_driver_counts_its_own_part_as_used():
    absent = fact("nvml", {"absent": {"nvml.driver_reserved_bytes": "Function Not Found"}})
    found = ledger(program(absent, without=("nvml.driver",), nvml__used_bytes=10 * GIB))
    assert found.source == "NVML v1"
    driver = found.find("driver_reserved")
    assert driver is not None
    assert (driver.bytes, driver.reason) == (None, "Function Not Found")
    assert_adds_up(found)


def test_all_that_was_read_long_before_the_end_says_so():
    def old(rows: list[Event]) -> set[str]:
        found = ledger([*rows, event(Kind.MARK, 10**10)])
        return {line.key for _, line in found.lines if line.reason.startswith("read 10.0 s before")}

    assert old(program()) == {"free", "driver_reserved", "used", "process"}
    runtime = [sample(f"mem_get_info.{name}_bytes", 5, GIB) for name in ("total", "free")]
    assert old(program(*runtime, without=("nvml.",))) == {"free", "used"}


def test_without_nvml_the_rest_of_the_card_is_one_line():
    rows = program(fact("nvml", {"absent": {"nvml": "Driver Not Loaded"}}), without=("nvml.",))
    rows = [row for row in rows if row.get("name") != "nvml.others.0"]
    elsewhere = ledger(rows).find("elsewhere")
    assert elsewhere is not None
    assert elsewhere.bytes == TOTAL - 6 * GIB
    assert "Driver Not Loaded" in elsewhere.reason
    assert_adds_up(ledger(rows))


def test_readings_before_the_last_driver_call_say_so():
    """Their rests are of two moments: what was taken in between is in none of them."""
    call = event(Kind.DEVICE_MALLOC, 80_001_000, bytes=8 * GIB)
    found = ledger([*program(), call])
    for key in ("free", "used", "process"):
        line = found.find(key)
        assert line is not None
        assert line.coverage == Coverage.PARTIAL
        assert "before the last driver call by this program" in line.reason, key
    assert size([*program(), call], "unexplained") < 0
    early = ledger([event(Kind.DEVICE_MALLOC, 5, bytes=MIB), *program()])
    assert early.coverage.get(Coverage.PARTIAL, ()) == (early.find("rounding"),)


def texts(timeline: Timeline, state: State) -> list[str]:
    return [each.text for each in write_sentences(timeline, state)]


def test_what_was_given_back_before_the_end_is_shown_at_the_peak():
    calls = [event(Kind.DEVICE_MALLOC, at, bytes=GIB) for at in (5, 6)]
    held = texts(fold([*program(), *calls]), state())
    assert not any("--at peak" in each for each in held)
    free = event(Kind.DEVICE_FREE, 7, bytes=GIB)
    assert (
        "Driver calls of this program held at most 2.00 GiB, and 0 B at the end. --at peak shows "
        "where the memory was."
    ) in texts(fold([*program(), *calls, free, free]), state())


def test_a_peak_that_driver_calls_do_not_tell_is_no_sentence():
    """They were made before the recording, or are older than is kept: --at peak knows no more."""
    free = event(Kind.DEVICE_FREE, 7, bytes=GIB)
    older = fact(Fact.SEGMENT, {"driver": {"pool": [9 * GIB, 9]}})
    for rows in ([free], [older, *[free] * 8]):
        found = texts(fold([*program(), *rows]), state())
        assert not any("--at peak" in each for each in found)


def test_driver_calls_of_the_runner_have_lines_and_their_granules():
    calls = [event(Kind.DEVICE_MALLOC, 1, bytes=3 * MIB), event(Kind.DEVICE_MALLOC, 2, bytes=5)]
    rows = program(*calls, event(Kind.STEP, 3, step=0))
    assert size(rows, "raw") == 3 * MIB + 5
    assert size(rows, "rounding") == MIB
    assert size(rows, "unexplained") == GIB - 518 * MIB - 4 * MIB - 5
    assert_adds_up(ledger(rows))


def test_expandable_segments_have_one_line_for_the_cache():
    rows = program(fact("torch.allocator", {"is_expandable": True}))
    assert size(rows, "torch.split") is None
    assert size(rows, "torch.cache") == 2 * GIB - 100 * MIB


def test_a_host_device_has_a_ledger_of_its_limit():
    rows = run_sweeps("past", 5, 2)
    call = event(Kind.DEVICE_MALLOC, 1, bytes=900)
    host = {"name": "host", "kind": "host", "total_bytes": 10**6, "limit_bytes": 10**5}
    found = ledger([*rows, call, fact("device.0", host)])
    assert found.total.bytes == 10**5
    assert_adds_up(found)


def test_nothing_read_is_no_ledger():
    assert make_ledgers(fold([])) == ()
    assert make_ledgers(fold([fact("cuda.0", {"name": "H200"})])) == ()


def test_devices_have_ledgers_of_their_own():
    rows = program()
    second = [row | {"device": 1} for row in rows if row["kind"] == Kind.SAMPLE]
    found = make_ledgers(fold([*rows, *second]))
    assert [each.device for each in found] == [0, 1]
    for each in found:
        assert_adds_up(each)


SIZES = st.integers(0, 1 << 45)


@given(
    sizes=st.dictionaries(st.sampled_from([*READINGS, "nvml.free_bytes"]), SIZES),
    others=st.dictionaries(st.integers(1, 99).map(str), st.none() | SIZES, max_size=20),
    context=st.none() | SIZES,
    raw=st.lists(SIZES, max_size=3),
    cupti=st.none()
    | st.dictionaries(
        st.sampled_from(
            [
                *(f"{part}_bytes" for part in ("libraries", "cupti", "modules", "base", "pools")),
                *("libraries", "pools"),
            ]
        ),
        SIZES | st.dictionaries(st.sampled_from(["cuda.bindings", "a", "b"]), SIZES),
    ),
    facts=st.dictionaries(
        st.sampled_from(["cuda.0", "nvml", "nvml.others.0", "context.0", "torch.allocator"]),
        st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    ),
)
def test_it_adds_up_whatever_was_read(
    sizes: dict[str, int],
    others: dict[str, int | None],
    context: int | None,
    raw: list[int],
    cupti: dict[str, Any] | None,
    facts: dict[str, Any],
):
    rows = [GPU, fact("nvml.others.0", {pid: {"bytes": held} for pid, held in others.items()})]
    rows += [fact("context.0", {"bytes": context})]
    rows += [fact("cupti.outside.0", cupti)] if cupti is not None else []
    rows += [fact(key, data) for key, data in facts.items()]
    rows += [event(Kind.DEVICE_MALLOC, 5, bytes=held) for held in raw]
    rows += [sample(name, 10 + number, held) for number, (name, held) in enumerate(sizes.items())]
    for found in make_ledgers(fold(rows)):
        assert_adds_up(found)


def test_the_summary_shows_it_and_json_has_it():
    summary = summarize(fold(program()), state())
    text = "\n".join(summary_lines(summary, "run.mscope"))
    assert "ledger: device 0, H200, by NVML v2" in text
    assert "optimizer state" in text
    assert "unexplained" in text
    assert "not measurable: stream-ordered pool" in text
    (found,) = json.loads(json.dumps(summary.to_json(), allow_nan=False))["ledger"]
    by_key = {line["key"]: line for line in found["lines"]}
    assert by_key["unexplained"]["bytes"] == GIB - 518 * MIB
    assert by_key["libraries"]["bytes"] is None
    assert "CUPTI" in by_key["libraries"]["reason"]


@pytest.mark.parametrize("key", ["stream_ordered", "libraries", "modules", "torch.private"])
def test_what_cannot_be_told_is_never_zero(key: str):
    line = ledger(program()).find(key)
    assert isinstance(line, LedgerLine)
    assert line.bytes is None
    assert line.reason
