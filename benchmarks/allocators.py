"""What eviction costs, by allocator.

python benchmarks/allocators.py --device cuda -o allocators.json
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter_ns
from typing import Any, cast

import torch

from memscope.cli.bench import (
    add_window_options,
    check_window_options,
    named_device,
    run_script,
    show,
)
from memscope.cli.progress import ProgressBars
from memscope.events import Kind
from memscope.recorder.recorder import Recorder
from memscope.recorder.rows import Row, make_emit
from memscope.units import format_bytes
from memscope_runners.bench.decoding import Run, metric_values, run_decoder, run_recorded
from memscope_runners.bench.machine import describe_machine, measure_link
from memscope_runners.checkpoint.fetch import open_model
from memscope_runners.memory.allocators import ALLOCATORS, AllocatorName, make_allocator
from memscope_runners.memory.choice import make_device
from memscope_runners.memory.device import Buffer, Device
from memscope_runners.memory.host_slabs import open_host_slabs
from memscope_runners.memory.parts import Unit
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.settings import Settings

CALLS = {
    AllocatorName.NAIVE: "malloc",
    AllocatorName.ASYNC: "malloc_async",
    AllocatorName.TORCH: "malloc_torch",
}
CALL_REPEATS = 15
BUSY_BYTES = 1 << 30
BUSY_PASSES = 12
GEOMETRIES = 3
GEOMETRY_STEPS = 12


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """Decoding with one layer kept under `past`, so that each layer's buffers change hands."""

    allocator: str
    unit: str
    prefetch: bool
    ms_per_token: float
    driver_calls_per_step: float | None
    pool_hit_rate: float | None
    idle_bytes: float | None
    peak_bytes: int
    is_outcome_same: bool


@dataclass(frozen=True, slots=True)
class CallRow:
    """µs of one call of a slab's size, with nothing to do on the device and with work in flight."""

    allocator: str
    bytes: int
    take_idle_us: float
    give_back_idle_us: float
    take_busy_us: float | None
    give_back_busy_us: float | None


@dataclass(frozen=True, slots=True)
class GeometryRow:
    """Three geometries that take turns, step by step, after each had its first."""

    allocator: str
    unit: str
    buffers_per_step: int
    hit_rate: float | None
    idle_bytes: int
    driver_calls_per_step: float


@dataclass(frozen=True, slots=True)
class AllocatorCosts:
    """All of it, on one machine."""

    machine: dict[str, Any]
    model: str
    link_bytes_per_s: float | None
    rows: tuple[DecodeRow, ...]
    calls: tuple[CallRow, ...]
    geometries: tuple[GeometryRow, ...]

    def to_json(self) -> dict[str, Any]:
        rate = self.link_bytes_per_s
        return {
            "machine": self.machine,
            "model": self.model,
            "pinned_copy_gb_per_s": None if rate is None else rate / 1e9,
            "pinned_copy_reason": "on the host a copy crosses no link" if rate is None else None,
            "rows": [asdict(row) for row in self.rows],
            "calls": [asdict(row) for row in self.calls],
            "geometries": [asdict(row) for row in self.geometries],
        }

    def tables(self) -> Iterator[list[tuple[str, ...]]]:
        """Three tables as text, each with its head."""
        head: tuple[str, ...] = (
            "allocator", "unit", "ahead", "ms/token", "driver calls", "hit rate", "peak", "same",
        )  # fmt: skip
        yield [head, *(_decode_texts(row) for row in self.rows)]
        head = (
            "allocator",
            "size",
            "take, idle",
            "give back, idle",
            "take, busy",
            "give back, busy",
        )
        yield [head, *(_call_texts(row) for row in self.calls)]
        head = ("allocator", "unit", "buffers a step", "hit rate", "idle", "driver calls")
        yield [head, *(_geometry_texts(row) for row in self.geometries)]


def measure_allocators(
    checkpoint: CheckpointSource,
    device_name: str,
    *,
    tokens: int,
    rounds: int,
    progress: Callable[[str, int, int], None],
) -> AllocatorCosts:
    """Every allocator that the device of that name has. Raises MemscopeError."""
    device = make_device(device_name)
    try:
        link, rows = measure_decoding(checkpoint, device_name, device, tokens, rounds, progress)
        return AllocatorCosts(
            machine=describe_machine(device),
            model=checkpoint.name,
            link_bytes_per_s=link,
            rows=tuple(rows),
            calls=tuple(measure_calls(device, checkpoint.layer_layout.bytes)),
            geometries=tuple(measure_geometries(checkpoint, device)),
        )
    finally:
        device.close()


def measure_decoding(
    checkpoint: CheckpointSource,
    device_name: str,
    device: Device,
    tokens: int,
    rounds: int,
    progress: Callable[[str, int, int], None],
) -> tuple[float | None, list[DecodeRow]]:
    """The link's bytes a second, and ms a token of each allocator and unit, in turn."""
    base = Settings("past", 1, device=device_name)
    settings = [
        replace(base, allocator=name, unit=unit, prefetch=prefetch)
        for prefetch in (False, True)
        for unit in Unit
        for name in ALLOCATORS[device.kind]
    ]
    names = ("driver.calls_per_step", "pool.hit_rate", "pool.idle_bytes")
    done, total = 0, len(settings) * (rounds + 1)
    timed: list[list[Run]] = [[] for _ in settings]
    host = open_host_slabs(checkpoint, device, progress=progress)
    try:
        link = measure_link(device, [host.slab(i) for i in range(checkpoint.config.layers)])
        recorded = []
        for each in settings:
            recorded.append(run_recorded(checkpoint, each, host, tokens))
            progress("runs", done := done + 1, total)
        for _ in range(rounds):
            for index, each in enumerate(settings):
                timed[index].append(run_decoder(checkpoint, each, host, tokens))
                progress("runs", done := done + 1, total)
    finally:
        host.close()
    first = recorded[0][0].outcome
    rows = []
    for each, (run, timeline), again in zip(settings, recorded, timed, strict=True):
        calls, hit_rate, idle_bytes = metric_values(timeline, names).values()
        rows.append(
            DecodeRow(
                each.allocator,
                each.unit,
                each.prefetch,
                statistics.median(one.ms_per_token for one in again),
                calls,
                hit_rate,
                idle_bytes,
                run.peak_bytes,
                all(one.outcome == first for one in (run, *again)),
            )
        )
    return link, rows


def measure_calls(device: Device, bytes: int) -> Iterator[CallRow]:
    """Medians of taking and giving back one slab."""
    for name in ALLOCATORS[device.kind]:
        if name not in CALLS:
            continue
        take = getattr(device, CALLS[name])
        idle = _time_calls(device, take, bytes, is_busy=False)
        busy = _time_calls(device, take, bytes, is_busy=True) if device.kind == "cuda" else None
        yield CallRow(name, bytes, *idle, *(busy or (None, None)))


def _time_calls(
    device: Device, take: Callable[[int, str], Buffer], bytes: int, *, is_busy: bool
) -> tuple[float, float]:
    work = torch.empty(BUSY_BYTES if is_busy else 0, dtype=torch.uint8, device=device.torch_device)
    taken, given = [], []
    for _ in range(CALL_REPEATS):
        _launch(device, work, is_busy)
        start = perf_counter_ns()
        buffer = take(bytes, "bench")
        taken.append(perf_counter_ns() - start)
        _launch(device, work, is_busy)
        start = perf_counter_ns()
        device.free(buffer)
        given.append(perf_counter_ns() - start)
    _launch(device, work, False)
    return statistics.median(taken) / 1e3, statistics.median(given) / 1e3


def _launch(device: Device, work: torch.Tensor, is_busy: bool) -> None:
    """An idle device, or one with some ms of work in flight."""
    if device.kind == "cuda":
        torch.cuda.synchronize(device.torch_device)
    for _ in range(BUSY_PASSES if is_busy else 0):
        work.add_(1)


class Rows:
    """A recorder that keeps its rows."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.emit, _ = make_emit(self.rows)

    def count(self, *kinds: int, first_step: int) -> int:
        return sum(row[1] in kinds and row[2] >= first_step for row in self.rows)


def measure_geometries(checkpoint: CheckpointSource, device: Device) -> Iterator[GeometryRow]:
    """Each step takes and gives back a model's buffers, of one of three sizes in turn."""
    layers, entries = checkpoint.config.layers, len(checkpoint.layer_layout.entries)
    for name in ALLOCATORS[device.kind]:
        if name == AllocatorName.STATIC:  # plans for what is known before
            continue
        for unit, count in ((Unit.SLAB, layers), (Unit.ENTRY, layers * entries)):
            size = checkpoint.layer_layout.bytes // (1 if unit == Unit.SLAB else entries)
            sizes = [size * share // 4 for share in (2, 3, 4)]
            yield _alternate(name, unit, device, sizes, count)


def _alternate(
    name: str, unit: str, device: Device, sizes: Sequence[int], count: int
) -> GeometryRow:
    rows = Rows()
    allocator = make_allocator(name, device, cast(Recorder, rows))
    device.mark_boundary()
    for step in range(GEOMETRY_STEPS):
        size = sizes[step % GEOMETRIES]
        geometry = f"of {size}"
        buffers = [allocator.take(geometry, size, step, layer) for layer in range(count)]
        for layer, buffer in enumerate(buffers):
            device.retire(buffer)
            allocator.give_back(buffer, geometry, step, layer)
    warm = GEOMETRIES
    hits = rows.count(Kind.POOL_HIT, first_step=warm)
    misses = rows.count(Kind.POOL_MISS, first_step=warm)
    calls = rows.count(Kind.DEVICE_MALLOC, Kind.DEVICE_FREE, first_step=warm)
    idle_bytes = allocator.idle_bytes
    allocator.close()
    hit_rate = hits / (hits + misses) if hits + misses else None
    calls_per_step = calls / (GEOMETRY_STEPS - warm)
    return GeometryRow(name, unit, count, hit_rate, idle_bytes, calls_per_step)


def _decode_texts(row: DecodeRow) -> tuple[str, ...]:
    return (
        row.allocator,
        row.unit,
        "yes" if row.prefetch else "no",
        f"{row.ms_per_token:.2f}",
        "" if row.driver_calls_per_step is None else f"{row.driver_calls_per_step:.0f}",
        "" if row.pool_hit_rate is None else f"{row.pool_hit_rate:.1%}",
        format_bytes(row.peak_bytes),
        "yes" if row.is_outcome_same else "NO",
    )


def _call_texts(row: CallRow) -> tuple[str, ...]:
    times = (row.take_idle_us, row.give_back_idle_us, row.take_busy_us, row.give_back_busy_us)
    texts = ("" if time is None else f"{time:.1f} µs" for time in times)
    return (row.allocator, format_bytes(row.bytes), *texts)


def _geometry_texts(row: GeometryRow) -> tuple[str, ...]:
    return (
        row.allocator,
        row.unit,
        str(row.buffers_per_step),
        "" if row.hit_rate is None else f"{row.hit_rate:.1%}",
        format_bytes(row.idle_bytes),
        f"{row.driver_calls_per_step:.0f}",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The script's options."""
    add_window_options(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    check_window_options(args)
    device = named_device(args)
    with ProgressBars() as bars:
        checkpoint = open_model(args.model, bars.update)
        costs = measure_allocators(
            checkpoint, device, tokens=args.tokens, rounds=args.rounds, progress=bars.update
        )
    show(args, costs.to_json(), costs.tables())
    return 0


if __name__ == "__main__":
    sys.exit(run_script(__doc__, add_arguments, run))
