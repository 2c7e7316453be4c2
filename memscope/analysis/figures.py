"""Every figure: its unit, its definition, its default limits, what to do when one is broken.

The table is the only place where a figure is named; how it is measured stands in the function
that its row names. A figure that nothing records yet says what would record it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from memscope.analysis.allocator import (
    cache_ratio,
    flushes_in_steps,
    rounding_ratio,
    swing_ratio,
)
from memscope.analysis.figure import Figure, Measured, Missing, Negligible, make_figure
from memscope.analysis.growth import growth_slope, time_until_full
from memscope.analysis.link import link_ratio
from memscope.analysis.memory import find_device, peak_bytes, peak_ratio
from memscope.analysis.residency import ONLY_WARMUP, Residency, analyse_residency
from memscope.analysis.timeline import Timeline
from memscope.analysis.weight_pool import WeightPool, analyse_weight_pool, hit_rate

__all__ = ["FIGURES", "DefaultLimit", "Figure", "FigureDefinition", "figures", "find_definition"]


@dataclass(frozen=True, slots=True)
class Results:
    """What figures are read from."""

    timeline: Timeline
    residency: Residency
    weight_pool: WeightPool


@dataclass(frozen=True, slots=True)
class DefaultLimit:
    """What a figure is held to where nobody said otherwise, in its unit; ``warn`` is tighter."""

    limit: str
    warn: str | None = None


@dataclass(frozen=True, slots=True)
class FigureDefinition:
    """One row of the table. ``direction``: whether "lower" or "higher" is better, or neither."""

    name: str
    unit: str
    definition: str
    measure: Callable[[Results], Measured | Negligible]
    limits: tuple[DefaultLimit, ...] = ()
    advice: str = ""
    direction: str = ""

    @property
    def area(self) -> str:
        """What stands before the dot."""
        return self.name.partition(".")[0]


def figures(timeline: Timeline) -> dict[str, Figure]:
    """Every figure of the table, in its order, and the pool's hit rate for each geometry."""
    results = Results(timeline, analyse_residency(timeline), analyse_weight_pool(timeline))
    found: dict[str, Figure] = {}
    for row in FIGURES:
        found[row.name] = make_figure(row.name, row.unit, row.measure(results))
        if row.name == "pool.hit_rate":
            found |= _hit_rates(results.weight_pool)
    return found


def find_definition(name: str) -> FigureDefinition | None:
    """The row of a figure, of one geometry's ("pool.hit_rate[64x2]") as well."""
    return _BY_NAME.get(name.partition("[")[0])


def _hit_rates(pool: WeightPool) -> dict[str, Figure]:
    """One for each geometry that was asked for after warm-up."""
    found = {}
    for geometry in pool.geometries:
        rate = hit_rate(geometry.hits, geometry.misses)
        if not isinstance(rate, Missing):
            name = f"pool.hit_rate[{geometry.name}]"
            found[name] = make_figure(name, "ratio", rate)
    return found


def _residency(field: str, results: Results) -> Measured:
    measured: Measured = getattr(results.residency, field)
    return measured


def _weight_pool(field: str, results: Results) -> Measured:
    measured: Measured = getattr(results.weight_pool, field)
    return measured


def _step_duration(results: Results) -> Measured:
    steps = results.timeline.measured_steps
    return float(np.median(steps.duration_ns)) / 1e6 if len(steps) else ONLY_WARMUP


def _wait_ratio(results: Results) -> Measured:
    timeline = results.timeline
    steps = timeline.measured_steps
    if not any(timeline.counts.get(kind) for kind in ("wait", "upload")):
        return Missing("no upload is recorded that compute could wait for", False)
    if timeline.dropped.get("wait"):
        return Missing(f"{timeline.dropped['wait']:,} waits were dropped by the recorder")
    if not len(steps):
        return ONLY_WARMUP
    if not timeline.counts.get("wait") and (steps.upload_duration_ns < 0).any():
        return Missing("neither uploads nor waits for them are timed")
    return float(np.median(steps.wait_ns / np.maximum(steps.duration_ns, 1)))


def _engine_ooms(results: Results) -> Measured:
    timeline = results.timeline
    count = timeline.oom_counts["engine"]
    if not count and "run.kind" not in timeline.facts:
        return Missing("nothing in this program records out-of-memory errors")
    return count


def _request_oom_rate(results: Results) -> Measured:
    timeline = results.timeline
    submitted = timeline.counts.get("request_submit", 0)
    if not submitted:
        return Missing("no request is recorded: this program serves none", False)
    return timeline.oom_counts["request"] / submitted


def _growth(kind: str, results: Results) -> Measured:
    return growth_slope(results.timeline, kind)


def _torch_allocator(needed: str, results: Results) -> Measured:
    device = find_device(results.timeline)
    if device is not None and device.is_host:
        return Missing("torch's caching allocator serves GPUs, and this is a host device", False)
    return Missing(needed)


def _paged_kv(results: Results) -> Measured:
    if results.timeline.facts.get("run.kind") == "q8-decode":
        return Missing("this run keeps its KV cache in one buffer, not in blocks", False)
    return Missing("no KV block is recorded")


_MAP = "the allocator's map (segments and blocks) is not recorded"

FIGURES = (
    FigureDefinition(
        "memory.peak_bytes",
        "bytes",
        "the most this process held: torch's reserved bytes and what driver calls took; "
        "on a host device what it handed out",
        lambda results: peak_bytes(results.timeline),
        direction="lower",
    ),
    FigureDefinition(
        "memory.peak_ratio",
        "ratio",
        "memory.peak_bytes over the device's memory or the limit set on it",
        lambda results: peak_ratio(results.timeline),
        (DefaultLimit("< 1", warn="< 0.95"),),
        "Keep fewer layers (--keep), or raise the device limit.",
        "lower",
    ),
    FigureDefinition(
        "memory.time_until_full_s",
        "s",
        "free bytes over the growth that growth.* measures",
        lambda results: time_until_full(results.timeline),
        direction="higher",
    ),
    FigureDefinition(
        "residency.uploads_per_step",
        "layers",
        "layers uploaded in a step, mean after warm-up",
        partial(_residency, "uploads_per_step"),
        direction="lower",
    ),
    FigureDefinition(
        "residency.avoidable_uploads",
        "layers",
        "uploads a step beyond L(L − C)/(L − 1), the fewest that any policy needs with the C "
        "slabs that the peak holds (0 where C is L)",
        partial(_residency, "avoidable_uploads"),
        (DefaultLimit("<= 2"),),
        "Another policy uploads less in the same memory: --policy pinned with the same peak.",
        "lower",
    ),
    FigureDefinition(
        "residency.entries_at_step_end",
        "entries",
        "weights ready for compute at the last step's end, lm_head among them",
        partial(_residency, "entries_at_step_end"),
    ),
    FigureDefinition(
        "residency.peak_entries",
        "entries",
        "the most weights ready for compute at once, within any step",
        partial(_residency, "peak_entries"),
        direction="lower",
    ),
    FigureDefinition(
        "residency.peak_layers",
        "layers",
        "the most layers ready for compute at once, within any step",
        partial(_residency, "peak_layers"),
        direction="lower",
    ),
    FigureDefinition(
        "residency.resident_bytes",
        "bytes",
        "weights ready for compute at the last step's end",
        partial(_residency, "resident_bytes"),
        direction="lower",
    ),
    FigureDefinition(
        "residency.in_flight_bytes",
        "bytes",
        "weights on their way at the last step's end",
        partial(_residency, "in_flight_bytes"),
        direction="lower",
    ),
    FigureDefinition(
        "residency.held_bytes",
        "bytes",
        "the most that resident, in flight and idle weights took together",
        partial(_residency, "held_bytes"),
        direction="lower",
    ),
    FigureDefinition(
        "pool.hit_rate",
        "ratio",
        "buffers taken from the weight pool over all that were asked of it, after warm-up",
        partial(_weight_pool, "hit_rate"),
        (DefaultLimit(">= 0.99"),),
        "Buffers are freed that are needed again: fewer geometries (--unit slab) or fewer idle.",
        "higher",
    ),
    FigureDefinition(
        "pool.idle_bytes",
        "bytes",
        "bytes in the weight pool that no layer holds, at the last step's end",
        partial(_weight_pool, "idle_bytes"),
        direction="lower",
    ),
    FigureDefinition(
        "driver.calls_per_step",
        "calls",
        "driver allocations and frees in a step, mean after warm-up",
        partial(_weight_pool, "calls_per_step"),
        (DefaultLimit("== 0"),),
        "Reuse buffers: --allocator pool, and --unit slab where more than 128 would lie idle.",
        "lower",
    ),
    FigureDefinition(
        "step.duration_ms",
        "ms",
        "median duration of a step after warm-up",
        _step_duration,
        direction="lower",
    ),
    FigureDefinition(
        "step.wait_ratio",
        "ratio",
        "share of a step in which compute waited for uploads, median after warm-up",
        _wait_ratio,
        direction="lower",
    ),
    FigureDefinition(
        "upload.link_ratio",
        "ratio",
        "upload rate over the link's rate from pinned memory at that copy size",
        lambda results: link_ratio(results.timeline),
        (DefaultLimit(">= 0.9"),),
        "Copy from pinned memory, and a whole slab at once (--unit slab).",
        "higher",
    ),
    FigureDefinition(
        "oom.engine_count",
        "errors",
        "out-of-memory errors of the engine",
        _engine_ooms,
        (DefaultLimit("== 0"),),
        "See what was asked for and what was free; a smaller --keep needs less.",
        "lower",
    ),
    FigureDefinition(
        "oom.request_rate",
        "ratio",
        "requests lost to memory over all submitted",
        _request_oom_rate,
        (DefaultLimit("== 0"),),
        "Give the KV cache more blocks, or admit fewer requests at once.",
        "lower",
    ),
    FigureDefinition(
        "allocator.cache_ratio",
        "ratio",
        "(reserved − allocated) / reserved of torch's allocator, median within steps after "
        "warm-up, private pools left out",
        lambda results: cache_ratio(results.timeline),
        (DefaultLimit("<= 0.2"),),
        "The cache holds what nothing uses: look for mixed sizes, or use expandable segments.",
        "lower",
    ),
    FigureDefinition(
        "allocator.flushes_in_steps",
        "calls",
        "torch.cuda.empty_cache() within steps",
        lambda results: flushes_in_steps(results.timeline),
        (DefaultLimit("== 0"),),
        "Take empty_cache() out of the loop: each call makes the next allocations slow.",
        "lower",
    ),
    FigureDefinition(
        "allocator.swing_ratio",
        "ratio",
        "(most − least allocated within a step) / most, median",
        lambda results: swing_ratio(results.timeline),
    ),
    FigureDefinition(
        "kv.peak_utilisation",
        "ratio",
        "KV blocks held by requests over all, at the peak",
        _paged_kv,
        (DefaultLimit(">= 0.7"), DefaultLimit("<= 0.95")),
        "Size the KV cache by its peak: fewer blocks where it stays empty, more where it is full.",
    ),
    FigureDefinition(
        "kv.unused_slot_ratio",
        "ratio",
        "unused slots of requests' last KV blocks over all slots held",
        _paged_kv,
        direction="lower",
    ),
    FigureDefinition(
        "fragmentation.external",
        "ratio",
        "1 − largest free block / free bytes inside segments",
        partial(_torch_allocator, _MAP),
        direction="lower",
    ),
    FigureDefinition(
        "fragmentation.internal",
        "ratio",
        "(allocated − requested) / allocated",
        lambda results: rounding_ratio(results.timeline),
        direction="lower",
    ),
    FigureDefinition(
        "growth.allocated",
        "bytes/step",
        "slope of the floor of allocated bytes, known KV left out",
        partial(_growth, "allocated"),
        (DefaultLimit("<= 1 KiB"),),
        "Something is kept from each step to the next: look for tensors in lists and closures.",
        "lower",
    ),
    FigureDefinition(
        "growth.reserved_gap",
        "bytes/step",
        "slope of the floor of reserved − allocated",
        partial(_growth, "reserved_gap"),
        (DefaultLimit("<= 1 KiB"),),
        "The cache grows without being used: sizes vary from step to step.",
        "lower",
    ),
    FigureDefinition(
        "growth.outside",
        "bytes/step",
        "slope of the floor of the process's bytes that torch did not reserve",
        partial(_growth, "outside"),
        (DefaultLimit("<= 1 KiB"),),
        "A library allocates outside torch: see which code is loaded while it grows.",
        "lower",
    ),
)

_BY_NAME = {row.name: row for row in FIGURES}
