"""Metrics of device memory, host memory, torch's allocator, fragmentation and growth."""

from __future__ import annotations

from memscope.analysis.metrics.allocator import (
    cache_ratio,
    flushes_in_steps,
    rounding_ratio,
    swing_ratio,
)
from memscope.analysis.metrics.definition import (
    IN_NO_OTHER_RUN,
    ON_ONE_CLASS,
    DefaultLimit,
    LiveCell,
    Measure,
    MetricDefinition,
)
from memscope.analysis.metrics.fragmentation_series import map_fragmentation
from memscope.analysis.metrics.growth import growth_slope, time_until_full
from memscope.analysis.metrics.memory import host_peak_bytes, peak_bytes, peak_ratio

ANY = "any program"
TORCH = "programs that use torch's caching allocator on a GPU"
SLACK_RATIO = 0.02  # change of a ratio by sampling alone
SLACK_GROWTH = 1024.0
SLACK_HOST_BYTES = float(16 << 20)  # change of Python and its libraries between runs


def _growth(kind: str) -> Measure:
    return lambda results: growth_slope(results.timeline, kind)


def _growth_row(
    kind: str, definition: str, advice: str, live: LiveCell | None = None
) -> MetricDefinition:
    return MetricDefinition(
        f"growth.{kind}",
        "bytes/step",
        definition,
        _growth(kind),
        "Theil–Sen slope over the run; per second if the program shows no steps",
        f"{TORCH}; the default limit applies if growth over the run is more than 0.5 %",
        (DefaultLimit("<= 1 KiB"),),
        advice,
        "lower",
        ON_ONE_CLASS,
        SLACK_GROWTH,
        is_after_warmup=True,
        live=live,
    )


MEMORY_METRICS = (
    MetricDefinition(
        "memory.peak_bytes",
        "bytes",
        "the most memory that this process held on one device: torch's reserved bytes plus its own "
        "driver calls; on a host device, the bytes that it handed out",
        lambda results: peak_bytes(results.timeline),
        "the peak of the recording",
        ANY,
        advice="See what it held at the peak: `memscope summary RECORDING --at peak`.",
        direction="lower",
        repeats=ON_ONE_CLASS,
        overview="most memory that the program took",
    ),
    MetricDefinition(
        "memory.peak_ratio",
        "ratio",
        "peak memory on one device / the device's memory or the limit set on it",
        lambda results: peak_ratio(results.timeline),
        "the peak of the recording",
        ANY,
        (DefaultLimit("< 1", warn="< 0.95"),),
        "Hold less at the peak (smaller batches, fewer layers on the device), or raise the limit.",
        "lower",
        ON_ONE_CLASS,
        overview="of usable memory",
        live=LiveCell("peak, of the limit", program=3),
    ),
    MetricDefinition(
        "memory.time_until_full_s",
        "s",
        "free bytes / the growth that growth.* measures",
        lambda results: time_until_full(results.timeline),
        "the end of the recording",
        "programs whose memory grows",
        advice="See which growth.* rises, and what is kept from step to step.",
        direction="higher",
        repeats=IN_NO_OTHER_RUN,
        is_after_warmup=True,
        live=LiveCell("time until full", program=8),
    ),
)

HOST_METRICS = (
    MetricDefinition(
        "host.peak_bytes",
        "bytes",
        "peak host RSS: the most resident memory of this process",
        lambda results: host_peak_bytes(results.timeline),
        "the peak of the recording",
        ANY,
        advice="See when it rose: host RSS over time in `memscope report RECORDING`.",
        direction="lower",
        repeats=ON_ONE_CLASS,
        slack=SLACK_HOST_BYTES,
        is_of_process=True,
        needs_device=False,
        overview="peak host RSS",
    ),
)

ALLOCATOR_METRICS = (
    MetricDefinition(
        "allocator.cache_ratio",
        "ratio",
        "(reserved − allocated) / reserved of torch's allocator, without private pools",
        lambda results: cache_ratio(results.timeline),
        "median of the readings within steps",
        f"{TORCH}; the default limit applies if reserved − allocated is at least 256 MiB and 1 % "
        "of the device",
        (DefaultLimit("<= 0.2"),),
        "Much of the cache is unused: avoid mixed sizes, or use expandable segments.",
        "lower",
        ON_ONE_CLASS,
        SLACK_RATIO,
        is_after_warmup=True,
        live=LiveCell("unused cache", program=2),
    ),
    MetricDefinition(
        "allocator.flushes_in_steps",
        "calls",
        "calls of torch.cuda.empty_cache() within steps",
        lambda results: flushes_in_steps(results.timeline),
        "all steps",
        TORCH,
        (DefaultLimit("== 0"),),
        "Remove empty_cache() from the loop: each call makes the next allocations slow.",
        "lower",
        is_after_warmup=True,
        live=LiveCell("flushes in steps", program=5),
    ),
    MetricDefinition(
        "allocator.swing_ratio",
        "ratio",
        "(most − least allocated within a step) / most",
        lambda results: swing_ratio(results.timeline),
        "median of steps with at least four readings",
        TORCH,
        advice="Smaller batches or activation checkpointing lower the peak.",
        is_after_warmup=True,
        live=LiveCell("swing within a step", program=7),
    ),
)

FRAGMENTATION_METRICS = (
    MetricDefinition(
        "fragmentation.external",
        "ratio",
        "1 − largest free block / free bytes inside segments, without private pools",
        lambda results: map_fragmentation(results.timeline),
        "the allocator's last recorded map",
        TORCH,
        advice="Free memory is in small blocks: use fewer different sizes, or expandable segments.",
        direction="lower",
        repeats=ON_ONE_CLASS,
        slack=SLACK_RATIO,
    ),
    MetricDefinition(
        "fragmentation.internal",
        "ratio",
        "(allocated − requested) / allocated",
        lambda results: rounding_ratio(results.timeline),
        "the last reading",
        TORCH,
        advice="Rounding wastes memory: many small tensors cost more than a few large ones.",
        direction="lower",
        repeats=ON_ONE_CLASS,
        slack=SLACK_RATIO,
    ),
)

GROWTH_METRICS = (
    _growth_row(
        "allocated",
        "growth of the floor (the lowest readings) of allocated bytes, without known KV",
        "Memory is kept from step to step: look for tensors in lists and closures.",
        LiveCell("growth", program=4),
    ),
    _growth_row(
        "reserved_gap",
        "growth of the floor of reserved − allocated",
        "Unused cache grows: allocation sizes vary from step to step.",
        LiveCell("cache growth", program=6),
    ),
    _growth_row(
        "outside",
        "growth of the floor of the process's memory outside torch",
        "A library allocates outside torch: see which code is loaded while it grows.",
    ),
)
