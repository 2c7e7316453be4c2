"""Metrics of a device's memory and of torch's allocator: level, cache, fragmentation, growth."""

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
TORCH = "programs whose GPU memory torch's caching allocator hands out"
SLACK_RATIO = 0.02  # what sampling alone may move a ratio by
SLACK_GROWTH = 1024.0
SLACK_HOST_BYTES = float(16 << 20)  # what Python and its libraries differ by from run to run


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
        "Theil–Sen slope over the run; a step is a second where the program has none",
        f"{TORCH}; the default where it comes to more than 0.5 % over the run",
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
        "the most this process held on one device: torch's reserved bytes and what driver calls "
        "took; on a host device what it handed out",
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
        "the most held on one device over that device's memory or the limit set on it",
        lambda results: peak_ratio(results.timeline),
        "the peak of the recording",
        ANY,
        (DefaultLimit("< 1", warn="< 0.95"),),
        "Hold less at the peak (smaller batches, fewer layers on the device), or raise the limit.",
        "lower",
        ON_ONE_CLASS,
        overview="of what may be used",
        live=LiveCell("peak, of the limit", program=3),
    ),
    MetricDefinition(
        "memory.time_until_full_s",
        "s",
        "free bytes over the growth that growth.* measures",
        lambda results: time_until_full(results.timeline),
        "the end of the recording",
        "programs of which something grows",
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
        "the peak of host RSS, host.rss_bytes: what this process had in the machine's memory",
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
        "(reserved − allocated) / reserved of torch's allocator, private pools left out",
        lambda results: cache_ratio(results.timeline),
        "median of the readings within steps",
        f"{TORCH}; the default where reserved − allocated is 256 MiB and 1 % of the device or more",
        (DefaultLimit("<= 0.2"),),
        "The cache holds what nothing uses: look for mixed sizes, or use expandable segments.",
        "lower",
        ON_ONE_CLASS,
        SLACK_RATIO,
        is_after_warmup=True,
        live=LiveCell("unused cache", program=2),
    ),
    MetricDefinition(
        "allocator.flushes_in_steps",
        "calls",
        "torch.cuda.empty_cache() within steps",
        lambda results: flushes_in_steps(results.timeline),
        "all steps",
        TORCH,
        (DefaultLimit("== 0"),),
        "Take empty_cache() out of the loop: each call makes the next allocations slow.",
        "lower",
        is_after_warmup=True,
        live=LiveCell("flushes in steps", program=5),
    ),
    MetricDefinition(
        "allocator.swing_ratio",
        "ratio",
        "(most − least allocated within a step) / most",
        lambda results: swing_ratio(results.timeline),
        "median of steps that were read four times or more",
        TORCH,
        advice="Activations come and go: smaller batches, or checkpointing, lower the peak.",
        is_after_warmup=True,
        live=LiveCell("swing within a step", program=7),
    ),
)

FRAGMENTATION_METRICS = (
    MetricDefinition(
        "fragmentation.external",
        "ratio",
        "1 − largest free block / free bytes inside segments, private pools left out",
        lambda results: map_fragmentation(results.timeline),
        "the allocator's last recorded map",
        TORCH,
        advice="No one free block is large: fewer different sizes, or expandable segments.",
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
        advice="Rounding takes it: many small tensors cost more than a few large ones.",
        direction="lower",
        repeats=ON_ONE_CLASS,
        slack=SLACK_RATIO,
    ),
)

GROWTH_METRICS = (
    _growth_row(
        "allocated",
        "slope of the floor of allocated bytes, known KV left out",
        "Something is kept from each step to the next: look for tensors in lists and closures.",
        LiveCell("growth", program=4),
    ),
    _growth_row(
        "reserved_gap",
        "slope of the floor of reserved − allocated",
        "The cache grows without being used: sizes vary from step to step.",
        LiveCell("cache growth", program=6),
    ),
    _growth_row(
        "outside",
        "slope of the floor of the process's bytes that torch did not reserve",
        "A library allocates outside torch: see which code is loaded while it grows.",
    ),
)
