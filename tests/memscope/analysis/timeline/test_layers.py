"""Layers of a watched model: their changes, and peaks that are told from bounds."""

from __future__ import annotations

import pytest

from memscope.analysis.summary.summary import summarize
from memscope.analysis.timeline.layers import LayerMemory
from memscope.cli.text.layers import layer_lines
from memscope.events import Kind
from tests.memscope.analysis.build import Event, event, fact, fold, state
from tests.memscope.analysis.torch_runs import MIB, sample

# Before the first layer, then after each: allocated, reserved, register of the peak, in MiB.
FORWARD = ((-1, 10, 20, 50), (0, 12, 20, 50), (1, 11, 30, 70))


def forward(
    step: int, readings: tuple[tuple[int, ...], ...] = FORWARD, device: int = 0
) -> list[Event]:
    names = ("torch.allocated_bytes", "torch.reserved_bytes", "torch.peak_allocated_bytes")
    rows = [
        sample(name, step * 100 + layer, size * MIB, step=step, layer=layer) | {"device": device}
        for layer, *sizes in readings
        for name, size in zip(names, sizes, strict=True)
    ]
    return [*rows, event(Kind.STEP, step * 100 + 90, step=step)]


def layers(rows: list[Event], split: int = 0) -> tuple[LayerMemory, ...]:
    return fold(rows, split=split).layer_memory


@pytest.mark.parametrize("split", [0, 1, 4])
def test_changes_are_from_a_layers_start_to_its_end(split):
    first, second = layers([*forward(0), *forward(7)], split)
    assert (first.allocated_delta, first.reserved_delta) == (2 * MIB, 0)
    assert (second.allocated_delta, second.reserved_delta) == (-MIB, 10 * MIB)
    assert first.readings == second.readings == 2


def test_a_layer_that_raised_the_peak_has_its_own_and_others_a_bound():
    first, second = layers(forward(0))
    assert (first.peak_bytes, first.is_upper_bound) == (50 * MIB, True)
    assert (second.peak_bytes, second.is_upper_bound) == (70 * MIB, False)


def test_a_register_that_is_reset_gives_every_layer_its_peak():
    watch = fact("watch", {"layers": ["a", "b"], "layer_peaks": "reset at each boundary"})
    reset = ((-1, 10, 20, 50), (0, 12, 20, 15), (1, 11, 30, 13))
    first, second = layers([watch, *forward(0, reset)])
    assert [layer.peak_bytes for layer in (first, second)] == [15 * MIB, 13 * MIB]
    assert not first.is_upper_bound
    assert first.name == "a"


def test_devices_do_not_mix():
    other = ((-1, 500, 500, 500), (2, 501, 500, 500))
    rows = [*forward(0)[:-1], *forward(0, other, device=1)]
    found = layers(rows)
    assert [layer.device for layer in found] == [0, 0, 1]
    assert found[2].allocated_delta == MIB


def test_the_last_step_is_not_where_the_next_one_starts():
    late = ((0, 99, 99, 99),)  # the reading before it was lost
    assert len(layers([*forward(0), *forward(1, late)])) == 2
    assert layers([*forward(0), *forward(1, late)])[0].readings == 1


def test_the_summary_marks_bounds():
    summary = summarize(fold([fact("watch", {"layers": ["a", "b"]}), *forward(0)]), state())
    text = "\n".join(layer_lines(summary.layers))
    assert "≤ 50.0 MiB" in text
    assert "+2.00 MiB" in text
    assert summary.to_json()["layers"][1]["is_upper_bound"] is False
