from __future__ import annotations

import json
import random
from typing import Any

import pytest

from memscope.analysis.diagnosis.snapshot.analysis import SnapshotAnalysis, analyse_snapshot
from memscope.analysis.diagnosis.snapshot.explain import explain_snapshot
from memscope.analysis.diagnosis.snapshot.words import why
from memscope.analysis.memory_map.block_map import block_map
from memscope.analysis.memory_map.map_history import map_before
from memscope.analysis.memory_map.memory_map import map_at_end
from memscope.analysis.replay.replay import replay
from memscope.interop.snapshot.snapshot import ALLOCATED, INACTIVE, PENDING, check_snapshot
from tests.memscope.fake_allocator import MIB, FakeAllocator, FakeOom
from tests.paths import DATA

CASES = DATA / "snapshots"
NAMES = sorted(path.stem for path in CASES.glob("*.json"))
VERSIONS = ("2.0", "2.1", "2.2", "2.3", "2.5", "2.8", "2.10", "2.12", "2.14")
# What no snapshot carries, or what the case keeps beside it.
NOT_IN_FILE = {"torch", "limit_bytes", "message", "diagnosis"}


def analyse(allocator: FakeAllocator, version: str = "2.12") -> SnapshotAnalysis:
    return analyse_snapshot(check_snapshot(allocator.snapshot(version), 1 << 30))


def fail(allocator: FakeAllocator, size: int, **where: Any) -> None:
    with pytest.raises(FakeOom):
        allocator.alloc(size, **where)


def fragment(allocator: FakeAllocator, blocks: int = 8, size: int = 64 * MIB) -> list[int]:
    """One segment, split, with every other block kept; the kept ones."""
    allocator.free(allocator.alloc(blocks * size))
    made = [allocator.alloc(size, by="keep") for _ in range(blocks)]
    for address in made[1::2]:
        allocator.free(address)
    return made[::2]


@pytest.mark.parametrize("name", NAMES)
def test_recorded_case_is_explained_as_known(name: str) -> None:
    known = json.loads((CASES / f"{name}.json").read_text())
    found = explain_snapshot(CASES / f"{name}.pickle").to_json()
    allowed = [None if each == "null" else each for each in known["diagnosis"].split("|")]
    assert found["diagnosis"] in allowed
    sizes_bytes = {key: value for key, value in known.items() if key not in NOT_IN_FILE}
    assert {key: found[key] for key in sizes_bytes} == sizes_bytes


def test_hidden_limit_is_said_and_bounded() -> None:
    found = explain_snapshot(CASES / "fragmented.pickle")
    assert any("a limit that the file does not contain" in note for note in found.notes)
    assert found.to_json()["oom"]["has_hidden_limit"] is True


@pytest.mark.parametrize("version", VERSIONS)
def test_every_schema_gives_the_same_amounts(version: str) -> None:
    allocator = FakeAllocator(600 * MIB)
    kept = fragment(allocator)
    fail(allocator, 200 * MIB)
    allocator.free(kept[0], completes=False)
    found, newest = analyse(allocator, version), analyse(allocator, "2.14")
    assert found.schema == {"2.14": "2.12"}.get(version, version)
    assert (found.diagnosis, found.active_bytes) == ("fragmentation", newest.active_bytes)
    assert (found.requested_bytes, found.pinned_bytes) == (
        newest.requested_bytes,
        newest.pinned_bytes,
    )
    assert found.stack_holders == newest.stack_holders
    assert found.oom is not None
    assert found.oom.largest_free_bytes == 64 * MIB


def test_map_at_any_event_is_what_the_allocator_had() -> None:
    for seed in range(12):
        allocator, states = _random_history(random.Random(seed))
        snapshot = check_snapshot(allocator.snapshot(), 1 << 30)
        end, trace = map_at_end(snapshot, 0), snapshot.traces[0]
        played = replay(trace, end)
        for event, state in states.items():
            found = map_before(end, trace, event)
            free = found.blocks.bytes[found.blocks.state == INACTIVE]
            assert state == {
                "reserved": found.reserved_bytes,
                "allocated": found.bytes_in(ALLOCATED),
                "pending": found.bytes_in(PENDING),
                "free": found.bytes_in(INACTIVE),
                "largest": free.max(initial=0),
            }, (seed, event)
            assert played.allocated[event] == state["allocated"], (seed, event)


def _random_history(chance: random.Random) -> tuple[FakeAllocator, dict[int, dict[str, Any]]]:
    """Sizes that leave no remainder too small to be split off; states by number of events."""
    allocator, live, pending = FakeAllocator(400 * MIB), [], []
    states = {0: allocator.state()}
    for _ in range(120):
        action = chance.random()
        if action < 0.5:
            size = chance.choice([300, 5_000, 700_000, 4 * MIB, 12 * MIB, 30 * MIB])
            stream, pool = chance.choice([0, 0, 7]), chance.choice([(0, 0), (0, 0), (0, 1)])
            try:
                live.append(allocator.alloc(size, stream=stream, pool=pool))
            except FakeOom:
                states.clear()  # the flush and the failure come between two states
        elif action < 0.8 and live:
            address = live.pop(chance.randrange(len(live)))
            completes = chance.random() < 0.8
            allocator.free(address, completes=completes)
            pending += [] if completes else [address]
        elif action < 0.9 and pending:
            allocator.complete(pending.pop(0))
        elif action > 0.97:
            allocator.empty_cache()
        states[len(allocator.trace)] = allocator.state()
    return allocator, states


def test_failure_is_judged_as_the_map_stood_then() -> None:
    allocator = FakeAllocator(600 * MIB)
    kept = fragment(allocator)
    fail(allocator, 200 * MIB)
    for address in kept:  # an except clause let go of everything, then dumped
        allocator.free(address)
    found = analyse(allocator)
    assert (found.allocated_bytes, found.diagnosis) == (0, "fragmentation")
    assert found.oom is not None
    assert found.oom.largest_free_bytes == 64 * MIB
    assert found.stack_holders[0].bytes == 256 * MIB


def test_shortage_where_free_and_cached_are_too_little() -> None:
    allocator = FakeAllocator(600 * MIB)
    for _ in range(5):
        allocator.alloc(100 * MIB, by="weights")
    fail(allocator, 300 * MIB)
    found = analyse(allocator)
    assert found.diagnosis == "shortage"
    assert found.oom is not None
    assert found.oom.missing_bytes == 200 * MIB
    assert "weights (train.py:1)" in why(found)


def test_limit_where_the_driver_had_enough() -> None:
    allocator = FakeAllocator(8 << 30, limit=600 * MIB)
    allocator.alloc(500 * MIB)
    fail(allocator, 300 * MIB)
    assert analyse(allocator).diagnosis == "memory_fraction"


def test_pending_frees_where_they_would_have_served() -> None:
    allocator = FakeAllocator(600 * MIB)
    address = allocator.alloc(400 * MIB)
    allocator.free(address, completes=False)
    fail(allocator, 300 * MIB)
    found = analyse(allocator)
    assert (found.diagnosis, found.pending_bytes) == ("pending_frees", 400 * MIB)


def test_private_pool_where_only_it_has_free_memory() -> None:
    allocator = FakeAllocator(600 * MIB)
    allocator.free(allocator.alloc(400 * MIB, pool=(0, 3)))
    fail(allocator, 300 * MIB)
    found = analyse(allocator)
    assert found.diagnosis == "private_pools"
    assert found.oom is not None
    assert (found.oom.free_bytes, found.oom.private_free_bytes) == (0, 400 * MIB)


def test_free_memory_of_another_stream_is_named() -> None:
    allocator = FakeAllocator(600 * MIB)
    big = allocator.alloc(300 * MIB, stream=7)
    allocator.free(big)
    allocator.alloc(4 * MIB, stream=7)
    allocator.alloc(250 * MIB)
    fail(allocator, 200 * MIB)
    found = analyse(allocator)
    assert found.diagnosis == "fragmentation"
    assert found.oom is not None
    assert found.oom.largest_free_bytes < 200 * MIB


def test_other_stream_is_the_first_advice() -> None:
    first = explain_snapshot(CASES / "other_stream.pickle").help[0]
    assert first.setting.startswith("allocate it on stream 0x")
    assert first.frees_bytes == 2560 * MIB


def test_request_no_card_can_serve() -> None:
    allocator = FakeAllocator(600 * MIB)
    fail(allocator, 1 << 40)
    assert analyse(allocator).diagnosis == "request_too_large"


def test_request_of_nothing_is_explained_too() -> None:
    data = FakeAllocator().snapshot()
    data["device_traces"] = [[{"action": "oom", "size": 0, "stream": 0, "device_free": 0}]]
    found = analyse_snapshot(check_snapshot(data, 1 << 30))
    assert found.diagnosis == "unknown"
    assert "does not say how much was requested" in why(found)


def test_nothing_failed_and_nothing_is_wrong() -> None:
    allocator = FakeAllocator()
    allocator.alloc(300 * MIB, by="weights")
    for _ in range(30):
        allocator.free(allocator.alloc(200 * MIB, by="workspace"))
    found = analyse(allocator)
    assert found.diagnosis is None
    assert "nothing looks wrong" in why(found)


@pytest.mark.parametrize("version", ["2.0", "2.5", "2.12"])
def test_growth_of_a_leak_with_and_without_labels(version: str) -> None:
    allocator = FakeAllocator()
    _leak(allocator, 40, 8 * MIB)
    found = analyse(allocator, version)
    assert found.diagnosis == "growth"
    assert found.growth is not None
    assert (found.growth.steps, found.growth.bytes_per_step) == (40, 8 * MIB)
    assert found.growth.holders[0].name == "leak (train.py:1)"
    assert found.growth.is_named == (version == "2.12")


def test_growth_to_the_end_is_the_reason_of_the_failure() -> None:
    allocator = FakeAllocator(900 * MIB)
    with pytest.raises(FakeOom):
        _leak(allocator, 500, 8 * MIB)
    found = analyse(allocator)
    assert (found.diagnosis, found.counts.ooms) == ("growth", 1)


def test_loading_weights_is_no_growth() -> None:
    allocator = FakeAllocator()
    for layer in range(30):
        allocator.label = f"layer {layer}"
        allocator.alloc(20 * MIB, by="load")
    for step in range(20):
        for layer in range(30):
            allocator.label = f"layer {layer}"
            allocator.free(allocator.alloc(4 * MIB, by=f"forward {step * 0}"))
    found = analyse(allocator)
    assert found.diagnosis is None
    assert found.growth is not None
    assert found.growth.bytes_per_step == 0


def _leak(allocator: FakeAllocator, steps: int, size: int) -> None:
    for step in range(steps):
        allocator.label = f"step {step}"
        workspace = allocator.alloc(256 * MIB, by="workspace")
        allocator.alloc(size, by="leak")
        allocator.free(workspace)


def test_peak_names_what_was_alive_then() -> None:
    allocator = FakeAllocator()
    allocator.alloc(100 * MIB, by="weights")
    first, second = allocator.alloc(300 * MIB, by="logits"), allocator.alloc(50 * MIB, by="mask")
    allocator.free(first)
    allocator.free(second)
    allocator.empty_cache()
    peak = analyse(allocator).peak
    assert peak is not None
    assert (peak.bytes, peak.event) == (450 * MIB, 6)
    assert [(holder.name.split()[0], holder.bytes) for holder in peak.holders] == [
        ("logits", 300 * MIB),
        ("weights", 100 * MIB),
        ("mask", 50 * MIB),
    ]


def test_fragmentation_follows_its_definition() -> None:
    allocator = FakeAllocator()
    fragment(allocator, blocks=8, size=64 * MIB)
    allocator.alloc(700)
    found = analyse(allocator)
    large, small = found.buckets
    assert (large.free_bytes, large.external) == (256 * MIB, 1 - 64 / 256)
    assert small.internal == (1024 - 700) / 1024
    assert (large.pinned_bytes, large.releasable_bytes) == (256 * MIB, 0)
    assert found.pins[0].holders[0].name == "keep (train.py:1)"


def test_expandable_pages_can_be_given_back() -> None:
    found = explain_snapshot(CASES / "expandable.pickle").to_json()
    # 13 holes of 96 MiB: of each at least 4 whole pages of 20 MiB.
    assert found["inactive_split_bytes"] == 0
    assert found["free_in_segments_bytes"] == 13 * 96 * MIB + 2 * MIB
    assert found["releasable_bytes"] == 13 * 80 * MIB + 2 * MIB


@pytest.mark.parametrize("name", NAMES)
def test_shares_add_up_to_what_could_be_had(name: str) -> None:
    found = explain_snapshot(CASES / f"{name}.pickle")
    oom = found.to_json()["oom"]
    held = oom["reserved_bytes"] if oom else found.sizes_bytes["reserved"]
    free = 0 if oom is None or oom["has_hidden_limit"] else oom["device_free_bytes"]
    assert found.bar_bytes == held + free


def test_holder_is_named_by_its_python_frame() -> None:
    found = explain_snapshot(CASES / "graph_pool.pickle").to_json()
    names = [holder["name"] for holder in found["holders"]["stack"]]
    lines = [name.removesuffix(")").rpartition(":")[2] for name in names]
    assert all(" (make_snapshots.py:" in name for name in names)
    assert lines == ["4", "26", "27"]


def test_block_map_draws_each_state() -> None:
    allocator = FakeAllocator()
    kept = fragment(allocator, blocks=4, size=64 * MIB)
    allocator.free(kept[1], completes=False)
    strip = block_map(analyse(allocator).memory)[0]
    assert strip == f"  256 MiB |{'#' * 16}{'.' * 16}{'~' * 16}{'.' * 16}|"


def test_device_that_failed_is_the_one_explained() -> None:
    fine, broken = FakeAllocator(), FakeAllocator(100 * MIB)
    fine.alloc(900 * MIB)
    fail(broken, 200 * MIB)
    data = fine.snapshot()
    other = broken.snapshot(device=1)
    data["device_traces"].append(other["device_traces"][1])
    data["segments"] += other["segments"]
    found = analyse_snapshot(check_snapshot(data, 1 << 30))
    assert (found.device, found.counts.ooms) == (1, 1)


def test_segments_alone_are_read() -> None:
    allocator = FakeAllocator()
    allocator.alloc(100 * MIB)
    found = analyse_snapshot(check_snapshot(allocator.snapshot()["segments"], 1 << 30))
    assert (found.allocated_bytes, found.peak, found.diagnosis) == (100 * MIB, None, None)


def test_old_blocks_without_events_are_counted() -> None:
    allocator = FakeAllocator()
    allocator.alloc(100 * MIB)
    allocator.trace.clear()
    allocator.alloc(200 * MIB)
    counts = analyse(allocator).counts
    assert (counts.ghost_blocks, counts.ghost_bytes) == (1, 100 * MIB)
