"""Windows over small random slabs, swept as a decoder sweeps them, and what they emitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from memscope import plan
from memscope.events import Kind
from memscope_runners.memory.allocators import Allocator, make_allocator
from memscope_runners.memory.device import HostDevice
from memscope_runners.memory.parts import Part, planned_buffers, split_layout
from memscope_runners.memory.policies import make_policy
from memscope_runners.memory.residency import Residency
from memscope_runners.q8.slab import Q8Weight, SlabLayout
from tests.fakes import ListRecorder, Row

ENTRIES = 7
LAYER_LAYOUT = SlabLayout.of(
    [
        ("q", 32, 32),
        ("k", 16, 32),
        ("v", 16, 32),
        ("o", 32, 32),
        ("gate", 48, 32),
        ("up", 48, 32),
        ("down", 32, 64),
    ]
)
HEAD_LAYOUT = SlabLayout.of([("lm_head", 80, 32)])


class RandomSlabs:
    """A source of random bytes; layer `layers` is the head."""

    layer_layout = LAYER_LAYOUT
    head_layout = HEAD_LAYOUT

    def __init__(self, layers: int) -> None:
        generator = torch.Generator().manual_seed(layers)
        sizes = [LAYER_LAYOUT.bytes] * layers + [HEAD_LAYOUT.bytes]
        self.fixed: dict[str, torch.Tensor] = {}
        self.slabs = [
            torch.randint(0, 256, (size,), generator=generator, dtype=torch.uint8) for size in sizes
        ]
        self.expected = [LAYER_LAYOUT.weights(slab) for slab in self.slabs[:-1]]
        self.expected.append(HEAD_LAYOUT.weights(self.slabs[-1]))

    def slab(self, layer: int) -> torch.Tensor:
        return self.slabs[layer]


def host_device(limit_bytes: int | None) -> HostDevice:
    return HostDevice(limit_bytes=limit_bytes)


@dataclass
class Window:
    """One residency window with its device and its rows; poison is always on."""

    layers: int
    policy: str = "past"
    keep: int | None = None
    allocator_name: str = "pool"
    unit: str = "slab"
    prefetch: bool = False
    limit_bytes: int | None = None
    make_device: Callable[[int | None], Any] = host_device
    on_layer: Callable[[Mapping[str, Q8Weight]], None] = lambda weights: None
    recorder: ListRecorder = field(default_factory=ListRecorder)
    source: RandomSlabs = field(init=False)
    device: Any = field(init=False)
    allocator: Allocator = field(init=False)
    residency: Residency = field(init=False)

    def __post_init__(self) -> None:
        recorder: Any = self.recorder
        self.source = RandomSlabs(self.layers)
        self.device = self.make_device(self.limit_bytes)
        held = plan.peak_layers(plan.Window(self.policy, self.keep, self.prefetch), self.layers)
        head = Part.of_entry(HEAD_LAYOUT.entry("lm_head"))
        planned = planned_buffers(split_layout(LAYER_LAYOUT, self.unit), held, head)
        self.allocator = make_allocator(self.allocator_name, self.device, recorder, planned)
        self.residency = Residency(
            self.source,
            self.device,
            self.allocator,
            make_policy(self.policy, self.layers, self.keep),
            unit=self.unit,
            prefetch=self.prefetch,
            poison=True,
            recorder=recorder,
        )

    def sweep(self, step: int) -> None:
        """One step; what the model sees is compared with the source, bit by bit."""
        self.residency.begin_step(step)
        for layer in range(self.layers):
            weights = self.residency.enter_layer(layer)
            assert_same_bits(weights, self.source.expected[layer])
            self.on_layer(weights)
        head = {"lm_head": self.residency.enter_head()}
        assert_same_bits(head, self.source.expected[-1])
        self.residency.end_step()
        self.recorder.emit(Kind.STEP, step)

    def run(self, steps: int = 4, *, close: bool = True) -> Window:
        for step in range(steps):
            self.sweep(step)
        if close:
            self.close()
        return self

    def close(self) -> None:
        self.residency.close()
        self.device.close()

    def uploaded_layers(self, step: int) -> int:
        rows = self.recorder.of(Kind.UPLOAD)
        return len({row.layer for row in rows if row.step == step and row.layer < self.layers})

    def driver_calls(self, step: int) -> int:
        return self.recorder.count(Kind.DEVICE_MALLOC, Kind.DEVICE_FREE, step=step)


@dataclass
class Occupancy:
    """Entries ready for compute, followed through each step's rows in the order of time."""

    at_step_ends: list[int]
    peak: int

    @classmethod
    def of(cls, recorder: ListRecorder) -> Occupancy:
        in_flight: dict[int, float] = {}
        ready: dict[int, float] = {}
        ends, peak = [], 0
        for row in in_order_of_time(recorder.rows):
            if row.kind == Kind.UPLOAD:
                assert row.value is not None
                in_flight[row.layer] = in_flight.get(row.layer, 0) + row.value
            elif row.kind == Kind.LAYER:
                ready[row.layer] = ready.get(row.layer, 0) + in_flight.pop(row.layer, 0)
                peak = max(peak, int(sum(ready.values())))
            elif row.kind == Kind.EVICT:
                gone = ready.pop(row.layer, 0) + in_flight.pop(row.layer, 0)
                assert gone == row.value
            elif row.kind == Kind.STEP:
                ends.append(int(sum(ready.values())))
        return cls(ends, peak)


def in_order_of_time(rows: list[Row]) -> Iterator[Row]:
    """Of each step, which ends with its own row."""
    waiting: list[Row] = []
    for row in rows:
        waiting.append(row)
        if row.kind == Kind.STEP:
            yield from sorted(waiting[:-1], key=lambda each: each.t_ns)
            yield row
            waiting = []
    yield from sorted(waiting, key=lambda each: each.t_ns)


def assert_same_bits(seen: Mapping[str, Q8Weight], expected: Mapping[str, Q8Weight]) -> None:
    assert list(seen) == list(expected)
    for name, weight in seen.items():
        assert torch.equal(weight.q.cpu(), expected[name].q), name
        scale, wanted = weight.scale.cpu(), expected[name].scale  # as bits: random bytes hold NaN
        assert torch.equal(scale.view(torch.int16), wanted.view(torch.int16)), name
