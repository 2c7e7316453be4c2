"""The allocator's map as rows and cells."""

from __future__ import annotations

import random
from typing import Any

import pytest

from memscope.analysis.memory_map import block_picture
from memscope.analysis.memory_map.block_map import block_map
from memscope.analysis.memory_map.block_picture import BlockPicture, draw_picture, recorded_picture
from memscope.analysis.memory_map.memory_map import map_at_end
from memscope.analysis.memory_map.recorded_map import recorded_map
from memscope.interop.snapshot.snapshot import check_snapshot
from tests.memscope.analysis.build import event, fold
from tests.memscope.analysis.recorded_maps import map_rows
from tests.memscope.fake_allocator import MIB, FakeAllocator

GIB = 1 << 30


def picture_of(allocator: FakeAllocator) -> BlockPicture:
    snapshot = check_snapshot(allocator.snapshot(), 1 << 30)
    memory = map_at_end(snapshot, 0)
    return draw_picture(memory, snapshot.stacks, snapshot.pools, device=0)


def checkered(allocator: FakeAllocator, *, blocks: int, size: int) -> list[int]:
    """One segment in which every second block is free; those that are not."""
    allocator.free(allocator.alloc(blocks * size))
    made = [allocator.alloc(size, by="keep") for _ in range(blocks)]
    for address in made[1::2]:
        allocator.free(address)
    return made[::2]


def test_each_block_is_a_cell_with_its_state_and_owner() -> None:
    allocator = FakeAllocator()
    kept = checkered(allocator, blocks=4, size=64 * MIB)
    allocator.free(kept[1], completes=False)
    (row,) = picture_of(allocator).rows
    assert (row.bytes, row.segments, row.pool, row.stream) == (256 * MIB, 1, "", "")
    assert [(cell.offset, cell.bytes, cell.state) for cell in row.cells] == [
        (0, 64 * MIB, "allocated"),
        (64 * MIB, 64 * MIB, "free"),
        (128 * MIB, 64 * MIB, "pending"),
        (192 * MIB, 64 * MIB, "free"),
    ]
    assert [cell.owner for cell in row.cells] == ["keep (train.py:1)", "", "keep (train.py:1)", ""]


def test_segments_that_look_the_same_are_one_row() -> None:
    allocator = FakeAllocator()
    for _ in range(3):
        allocator.alloc(100 * MIB)
    allocator.free(allocator.alloc(100 * MIB))
    full, empty = picture_of(allocator).rows
    assert (full.segments, empty.segments) == (3, 1)
    assert full.cells[0].allocated_bytes == 300 * MIB
    assert full.cells[0].bytes == 100 * MIB
    assert empty.cells[0].free_bytes == 100 * MIB


def test_pools_and_streams_have_rows_of_their_own() -> None:
    allocator = FakeAllocator()
    allocator.alloc(100 * MIB)
    allocator.alloc(100 * MIB, pool=(0, 7))
    allocator.alloc(100 * MIB, stream=0x7F00)
    marks = {(row.pool, row.stream) for row in picture_of(allocator).rows}
    assert marks == {("", ""), ("private pool (0, 7)", ""), ("", "stream 0x7f00")}


def test_small_segments_lie_on_a_panel_where_they_can_be_seen() -> None:
    allocator = FakeAllocator()
    for size in (8 * GIB, 100 * MIB, 64 * MIB, 12 * MIB):
        allocator.alloc(size)
    panels = picture_of(allocator).panels
    sizes = [[row.bytes // MIB for row in panel.rows] for panel in panels]
    assert sizes == [[8192], [100, 64, 12]]
    resolutions = [panel.resolution_bytes for panel in panels]
    assert all(
        panel.rows[0].bytes // resolution >= 200
        for panel, resolution in zip(panels, resolutions, strict=True)
    )


def test_a_segment_too_small_to_be_seen_sets_no_scale() -> None:
    allocator = FakeAllocator()
    for size in (64 * GIB, 500 * MIB, MIB):
        allocator.alloc(size)
    panels = picture_of(allocator).panels
    assert [row.bytes // MIB for row in panels[-1].rows] == [500, 2]
    assert panels[-1].resolution_bytes == GIB // block_picture.ROW_CELLS > 2 * MIB


def test_blocks_too_small_to_draw_share_cells_and_add_up() -> None:
    allocator = FakeAllocator()
    checkered(allocator, blocks=1200, size=2 * MIB)
    picture = picture_of(allocator)
    (row,) = picture.rows
    assert len(row.cells) <= 2 * block_picture.ROW_CELLS
    assert {cell.state for cell in row.cells} == {"mixed"}
    assert sum(cell.blocks for cell in row.cells) == 1200
    assert sum(cell.allocated_bytes for cell in row.cells) == 1200 * MIB
    assert sum(cell.free_bytes for cell in row.cells) == 1200 * MIB


def test_a_picture_of_any_map_is_small_and_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_picture, "MOST_CELLS", 60)
    chance = random.Random(5)
    for _ in range(5):
        allocator = FakeAllocator()
        live = [allocator.alloc(chance.randrange(1, 300) * MIB // 4) for _ in range(150)]
        for address in chance.sample(live, 90):
            allocator.free(address, completes=chance.random() < 0.7)
        live = [allocator.alloc(chance.randrange(1, 40) * MIB // 4) for _ in range(150)]
        picture = picture_of(allocator)
        assert len(picture.rows) <= block_picture.MOST_ROWS
        assert sum(len(row.cells) for row in picture.rows) <= 60
        for row in picture.rows:
            assert [cell.offset for cell in row.cells] == starts(row.cells)
            held = [
                cell.allocated_bytes + cell.pending_bytes + cell.free_bytes for cell in row.cells
            ]
            assert sum(held) == row.bytes * row.segments
        drawn = sum(row.bytes * row.segments for row in picture.rows)
        assert drawn + picture.undrawn_bytes == picture.reserved_bytes == allocator.reserved
        assert 0 <= picture.undrawn_segments < picture.segments == len(allocator.segments)


def starts(cells: Any) -> list[int]:
    """Where cells begin that follow one another without a gap."""
    found, place = [], 0
    for cell in cells:
        found.append(place)
        place += cell.bytes
    return found


def test_rows_with_most_memory_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_picture, "MOST_ROWS", 2)
    allocator = FakeAllocator()
    for size in (100, 30, 30, 30, 30, 90):
        allocator.alloc(size * MIB)
    picture = picture_of(allocator)
    assert [(row.bytes // MIB, row.segments) for row in picture.rows] == [(100, 1), (30, 4)]
    assert (picture.undrawn_segments, picture.undrawn_bytes) == (1, 90 * MIB)


def test_a_recorded_map_is_drawn_as_the_snapshot_would_be() -> None:
    allocator = FakeAllocator()
    checkered(allocator, blocks=8, size=64 * MIB)
    rows = map_rows(allocator, at_ns=9)
    found, expected = recorded_picture(fold(rows)), picture_of(allocator)
    assert found is not None
    assert (found.t_ns, found.panels) == (9, expected.panels)


@pytest.mark.parametrize(("most", "missing"), [(3, 4), (5, 3), (7, 1), (8, 0)])
def test_segments_past_what_is_read_are_counted(
    most: int, missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memscope.analysis.timeline.map_rows.MAX_ROWS", most)
    allocator = FakeAllocator()
    for _ in range(4):
        allocator.alloc(100 * MIB)
    found = recorded_map(fold(map_rows(allocator), split=3))
    assert found is not None
    assert (found.left_out_segments, found.left_out_bytes) == (missing, missing * 100 * MIB)
    assert len(found.snapshot.segments) == 4 - missing


def test_a_recording_without_a_map_has_no_picture() -> None:
    assert recorded_picture(fold([event(31, 1, name="mark")])) is None


def test_strip_shows_what_cells_hold() -> None:
    allocator = FakeAllocator()
    checkered(allocator, blocks=1000, size=2 * MIB)
    snapshot = check_snapshot(allocator.snapshot(), 1 << 30)
    assert block_map(map_at_end(snapshot, 0)) == [f" 1.95 GiB |{':' * 64}|"]
