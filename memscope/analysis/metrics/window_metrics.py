"""Metrics of a residency window: uploads, resident weights, the weight pool, steps and the link."""

from __future__ import annotations

import numpy as np

from memscope.analysis.metrics.definition import (
    IN_NO_OTHER_RUN,
    DefaultLimit,
    LiveCell,
    Measure,
    MetricDefinition,
    Results,
)
from memscope.analysis.metrics.link import link_ratio
from memscope.analysis.metrics.metric import Measured, Missing
from memscope.analysis.metrics.residency import ONLY_WARMUP
from memscope.analysis.timeline.timeline import Timeline

WINDOW = "programs with a residency window over their layers"
SMALLER = "Change the window: another --keep or --policy."
POOL = "programs with a weight pool"
NO_STEPS = Missing("the program shows no steps, so each second counts as one")


def _residency(field: str) -> Measure:
    def measure(results: Results) -> Measured:
        measured: Measured = getattr(results.residency, field)
        return measured

    return measure


def why_no_durations(timeline: Timeline) -> Missing | None:
    """Why step durations are not known; None if they are, or will be when a step ends."""
    return NO_STEPS if timeline.are_steps_seconds else None


def _step_duration(results: Results) -> Measured:
    if missing := why_no_durations(results.timeline):
        return missing
    steps = results.timeline.measured_steps
    return float(np.median(steps.duration_ns)) / 1e6 if len(steps) else ONLY_WARMUP


def _wait_ratio(results: Results) -> Measured:
    timeline = results.timeline
    steps = timeline.measured_steps
    if not any(timeline.counts.get(kind) for kind in ("wait", "upload")):
        return Missing("no uploads are recorded that compute could wait for", False)
    if not len(steps):
        return ONLY_WARMUP
    if not timeline.counts.get("wait") and (steps.upload_duration_ns < 0).any():
        return Missing("neither uploads nor waits for them are timed")
    return float(np.median(steps.wait_ns / np.maximum(steps.duration_ns, 1)))


def _window_row(
    field: str,
    unit: str,
    definition: str,
    moment: str,
    direction: str = "lower",
    *,
    overview: str = "",
    live: LiveCell | None = None,
) -> MetricDefinition:
    return MetricDefinition(
        f"residency.{field}",
        unit,
        definition,
        _residency(field),
        moment,
        WINDOW,
        advice=SMALLER,
        direction=direction,
        overview=overview,
        live=live,
    )


RESIDENCY_METRICS = (
    MetricDefinition(
        "residency.uploads_per_step",
        "layers",
        "layers uploaded in a step",
        _residency("uploads_per_step"),
        "mean of steps",
        WINDOW,
        advice="Keep more layers (--keep), or use another policy (--policy pinned).",
        direction="lower",
        is_after_warmup=True,
        overview="uploaded per step",
        live=LiveCell("uploads a step", window=3),
    ),
    MetricDefinition(
        "residency.avoidable_uploads",
        "layers",
        "uploads per step that a better policy would avoid at the same peak memory; the best "
        "policy uploads L(L − C)/(L − 1) if C of L layers fit (0 if C is L)",
        _residency("avoidable_uploads"),
        "mean of steps",
        WINDOW,
        (DefaultLimit("<= 2"),),
        "Use a policy that uploads less in the same memory: --policy pinned with the same peak.",
        "lower",
        is_after_warmup=True,
        live=LiveCell("avoidable uploads", window=4),
    ),
    _window_row(
        "entries_at_step_end",
        "entries",
        "weights ready for compute, including lm_head",
        "the last step's end",
        "",
        live=LiveCell("entries at end", window=5),
    ),
    _window_row(
        "peak_entries",
        "entries",
        "the most weights ready for compute at once",
        "the peak within any step",
        live=LiveCell("peak entries", window=6),
    ),
    _window_row(
        "peak_layers",
        "layers",
        "the most layers ready for compute at once",
        "the peak within any step",
        overview="most layers ready at once",
        live=LiveCell("peak layers", window=9),
    ),
    _window_row("resident_bytes", "bytes", "weights ready for compute", "the last step's end"),
    _window_row(
        "in_flight_bytes", "bytes", "weights that are being uploaded", "the last step's end"
    ),
    _window_row(
        "held_bytes",
        "bytes",
        "the most memory that resident, in-flight and idle weights took together",
        "the peak of the recording",
        live=LiveCell("weights held at peak", window=10),
    ),
)

POOL_METRICS = (
    MetricDefinition(
        "pool.hit_rate",
        "ratio",
        "requests that the weight pool served with a free buffer / all; also by geometry",
        lambda results: results.weight_pool.hit_rate,
        "all steps",
        POOL,
        (DefaultLimit(">= 0.99"),),
        "Buffers are freed and then needed again: use fewer geometries (--unit slab).",
        "higher",
        is_after_warmup=True,
        live=LiveCell("pool hit rate", window=7),
    ),
    MetricDefinition(
        "pool.idle_bytes",
        "bytes",
        "bytes in the weight pool that no layer holds",
        lambda results: results.weight_pool.idle_bytes,
        "the last step's end",
        POOL,
        advice="Use fewer geometries (--unit slab) or a smaller window.",
        direction="lower",
    ),
    MetricDefinition(
        "driver.calls_per_step",
        "calls",
        "driver allocations and frees in a step",
        lambda results: results.weight_pool.calls_per_step,
        "mean of steps",
        "programs that record their driver calls",
        (DefaultLimit("== 0"),),
        "Reuse buffers: --allocator pool, and --unit slab if more than 128 would be idle.",
        "lower",
        is_after_warmup=True,
        live=LiveCell("driver calls a step", window=8),
    ),
)

STEP_METRICS = (
    MetricDefinition(
        "step.duration_ms",
        "ms",
        "how long a step took",
        _step_duration,
        "median of steps",
        "programs with steps",
        advice="See what a step waits for: step.wait_ratio and driver.calls_per_step.",
        direction="lower",
        repeats=IN_NO_OTHER_RUN,
        is_after_warmup=True,
        needs_device=False,
        overview="per step, median",
        live=LiveCell("step time", window=1, program=1),
    ),
    MetricDefinition(
        "step.wait_ratio",
        "ratio",
        "share of a step in which compute waited for uploads",
        _wait_ratio,
        "median of steps",
        WINDOW,
        advice="Upload ahead (--prefetch), keep more layers, or copy from pinned memory.",
        direction="lower",
        repeats=IN_NO_OTHER_RUN,
        is_after_warmup=True,
        overview="of each step waiting for uploads",
        live=LiveCell("waiting for uploads", window=2),
    ),
    MetricDefinition(
        "upload.link_ratio",
        "ratio",
        "upload rate / the link's rate from pinned memory at the same copy size",
        lambda results: link_ratio(results.timeline),
        "all timed uploads",
        f"{WINDOW}, on a GPU",
        (DefaultLimit(">= 0.9"),),
        "Copy from pinned memory, and a whole slab at once (--unit slab).",
        "higher",
        IN_NO_OTHER_RUN,
        is_after_warmup=True,
    ),
)
