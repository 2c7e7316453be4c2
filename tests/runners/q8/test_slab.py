"""The layout of a slab."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from memscope_runners.q8.slab import SlabLayout

SHAPES = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 6).map(lambda groups: groups * 32)), min_size=1
)


def layout_of(shapes: list[tuple[int, int]]) -> SlabLayout:
    return SlabLayout.of((f"w{i}", rows, columns) for i, (rows, columns) in enumerate(shapes))


@given(SHAPES)
def test_what_is_written_through_the_views_is_read_back_bit_for_bit(
    shapes: list[tuple[int, int]],
) -> None:
    layout = layout_of(shapes)
    buffer = torch.zeros(layout.bytes, dtype=torch.uint8)
    written = {}
    for name, weight in layout.weights(buffer).items():
        weight.q.random_(-127, 128)
        weight.scale.uniform_(-1, 1)
        written[name] = weight.q.clone(), weight.scale.clone()
    for name, weight in layout.weights(buffer.clone()).items():
        assert torch.equal(weight.q, written[name][0])
        assert torch.equal(weight.scale, written[name][1])


@given(SHAPES)
def test_each_part_starts_on_a_boundary_behind_the_one_before(
    shapes: list[tuple[int, int]],
) -> None:
    layout, end = layout_of(shapes), 0
    for entry in layout.entries:
        assert entry.start == end
        assert entry.start % 256 == entry.scale_start % 256 == entry.end % 256 == 0
        assert entry.start + entry.q_bytes <= entry.scale_start
        assert entry.scale_start + entry.scale_bytes <= entry.end
        end = entry.end
    assert layout.bytes == end


def test_an_entry_alone_reads_the_same_as_in_its_slab() -> None:
    layout = layout_of([(3, 32), (5, 64)])
    buffer = torch.randint(0, 120, (layout.bytes,), dtype=torch.uint8)
    entry = layout.entry("w1")
    alone = entry.weight(buffer[entry.start : entry.end].clone())
    assert torch.equal(alone.q, layout.weights(buffer)["w1"].q)
    assert torch.equal(alone.scale, layout.weights(buffer)["w1"].scale)
    assert entry.geometry == "5x2"
