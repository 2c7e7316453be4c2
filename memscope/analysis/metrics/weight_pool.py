"""Metrics of the weight pool: how often it had a free buffer, and how much of it is idle."""

from __future__ import annotations

from dataclasses import dataclass

from memscope.analysis.metrics.metric import Measured, Missing
from memscope.analysis.metrics.residency import NO_STEP, ONLY_WARMUP
from memscope.analysis.timeline.facts import read_policy
from memscope.analysis.timeline.step_fold import Geometry
from memscope.analysis.timeline.timeline import Timeline

NO_POOL = Missing("this program has no weight pool", False)
NO_TAKE = Missing("no buffer was requested from the pool after warm-up", False)


@dataclass(frozen=True, slots=True)
class WeightPool:
    """Counts of steps after warm-up; ``idle_bytes`` is at the end of the last step."""

    hits: int
    misses: int
    returns: int
    overflows: int
    hit_rate: Measured
    idle_bytes: Measured
    calls_per_step: Measured
    geometries: tuple[Geometry, ...]


def analyse_weight_pool(timeline: Timeline) -> WeightPool:
    """Compute the metrics of a recording's weight pool."""
    steps = timeline.measured_steps
    hits, misses = int(steps.pool_hits.sum()), int(steps.pool_misses.sum())
    return WeightPool(
        hits=hits,
        misses=misses,
        returns=int(steps.pool_returns.sum()),
        overflows=int(steps.pool_overflows.sum()),
        hit_rate=_missing(timeline) or hit_rate(hits, misses),
        idle_bytes=_idle_bytes(timeline),
        calls_per_step=_calls_per_step(timeline),
        geometries=timeline.geometries,
    )


def hit_rate(hits: int, misses: int) -> Measured:
    """hits / (hits + misses), or why there is none."""
    return hits / (hits + misses) if hits + misses else NO_TAKE


def _missing(timeline: Timeline) -> Missing | None:
    allocator = read_policy(timeline.facts).allocator
    if allocator not in (None, "pool"):
        return Missing(f"--allocator {allocator} has no pool", False)
    if not any(timeline.counts.get(kind) for kind in ("pool_hit", "pool_miss")):
        return NO_POOL
    return None if len(timeline.measured_steps) else ONLY_WARMUP


def _idle_bytes(timeline: Timeline) -> Measured:
    steps = timeline.steps
    if not len(steps):
        return NO_STEP
    if steps.idle_bytes[-1] < 0:
        return Missing("pool.idle_bytes is not sampled at step ends")
    return int(steps.idle_bytes[-1])


def why_no_calls(timeline: Timeline) -> Missing | None:
    """Why driver calls per step are not known; None if they are."""
    if not timeline.driver.calls:
        return Missing("no driver call is recorded")
    if read_policy(timeline.facts).allocator == "torch":
        return Missing("torch makes the driver calls for weights and reports only their number")
    return None


def _calls_per_step(timeline: Timeline) -> Measured:
    steps = timeline.measured_steps
    missing = why_no_calls(timeline)
    if missing is not None:
        return missing
    if not len(steps):
        return ONLY_WARMUP
    return float((steps.device_mallocs + steps.device_frees).mean())
