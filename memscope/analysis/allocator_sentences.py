"""What growth, fragmentation and flushes mean for this run, a sentence each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memscope.analysis.allocator import cache_ratio, find_flushes, flushes_in_steps, gap_bytes
from memscope.analysis.figure import Highest, Missing, Negligible
from memscope.analysis.growth import (
    Growth,
    fastest_growth,
    measure_growth,
    time_until_full,
    unit_measured,
)
from memscope.analysis.timeline import Timeline
from memscope.units import format_bytes, format_seconds

HIGH_CACHE_RATIO = 0.2
USED_SHARE = 0.8  # of what is reserved, at the peak: the cache was needed then
SMALL_RISE = 64 << 20  # bytes over the run: a cache or a host that grows by less names nothing
OFTEN = 0.05  # flushes a step


def write_allocator_sentences(timeline: Timeline) -> Iterator[str]:
    """A leak, memory that grows outside torch or on the host, fragmentation, flushes."""
    yield from _leaks(timeline)
    yield from _host_growth(timeline)
    yield from _fragmentation(timeline)
    yield from _flushes(timeline)


def _leaks(timeline: Timeline) -> Iterator[str]:
    full = time_until_full(timeline)
    until = ""
    if isinstance(full, Highest):
        until = f"; {full.place or 'the device'} is full in {format_seconds(full.value)}"
    if growth := _plain_growth(timeline, "allocated"):
        less_kv = ", known KV left out" if "model.kv_bytes" in timeline.series else ""
        yield (
            f"Leak: allocated memory grows by {_a_step(timeline, growth)} "
            f"(growth.allocated{less_kv}): something is kept from each step to the next{until}."
        )
    if growth := _plain_growth(timeline, "outside"):
        yield (
            f"Leak outside torch: the process grows by {_a_step(timeline, growth)} beyond what "
            f"torch reserves (growth.outside): a library allocates by itself{until}."
        )


def _host_growth(timeline: Timeline) -> Iterator[str]:
    for readings in timeline.metric("host.rss_bytes").values():
        growth = measure_growth(timeline, readings.series)
        if isinstance(growth, Growth) and growth.is_plain and growth.rise_bytes >= SMALL_RISE:
            yield (
                f"Host memory: this process's RSS grows by {_a_step(timeline, growth)} "
                "(host.rss_bytes.growth): something is kept, or more of a mapped file is read."
            )


def _plain_growth(timeline: Timeline, kind: str) -> Growth | None:
    found = fastest_growth(timeline, kind)
    return found[1] if found and found[1].is_plain else None


def _fragmentation(timeline: Timeline) -> Iterator[str]:
    growth = _plain_growth(timeline, "reserved_gap")
    ratio = cache_ratio(timeline)
    grows = growth is not None and growth.rise_bytes >= SMALL_RISE
    is_high = (
        not isinstance(ratio, Missing | Negligible)
        and ratio.value > HIGH_CACHE_RATIO
        and not _is_used_at_peak(timeline)
    )
    if not (grows or is_high) or isinstance(ratio, Missing):
        return
    highest = ratio.value if isinstance(ratio, Negligible) else ratio
    gap = gap_bytes(timeline, highest.device)
    if isinstance(gap, Missing):
        return
    more = f", {_a_step(timeline, growth)} more" if growth and grows else ""
    yield (
        f"Fragmentation: {highest.value:.0%} of what torch reserves ({format_bytes(gap)}{more}) is "
        "free within steps but does not fit what is asked for (allocator.cache_ratio): sizes vary. "
        f"{_fragmentation_advice(timeline)}"
    )


def _fragmentation_advice(timeline: Timeline) -> str:
    if timeline.fact("torch.allocator", "is_expandable"):
        return "Pad batches and lengths to a few sizes."
    return "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or pad to a few sizes."


def _is_used_at_peak(timeline: Timeline) -> bool:
    """Whether tensors filled what is reserved at some moment: then the cache is no loss."""
    series = timeline.series
    allocated, reserved = series.get("torch.peak_allocated_bytes"), series["torch.reserved_bytes"]
    return allocated is not None and allocated.peak >= USED_SHARE * reserved.peak


def _flushes(timeline: Timeline) -> Iterator[str]:
    count, steps = flushes_in_steps(timeline), len(timeline.measured_steps)
    if isinstance(count, Missing) or count < OFTEN * steps or not count:
        return
    flushes = find_flushes(timeline)
    yield (
        f"torch.cuda.empty_cache() ran {count:,.0f} times in {steps:,} steps "
        f"(allocator.flushes_in_steps), mostly from {_short(flushes.caller)}: each took "
        f"{format_seconds(flushes.mean_ns / 1e9)} and gave back {format_bytes(flushes.mean_bytes)} "
        "that the next step asks the driver for again. Take it out of the loop."
    )


def _a_step(timeline: Timeline, growth: Growth) -> str:
    """ "4.0 MiB a step, 1.2 GiB over 300 steps" """
    is_steps = unit_measured(timeline, "a step") == "a step"
    one, many = ("step", "steps") if is_steps else ("second", "seconds")
    return (
        f"{format_bytes(growth.slope)} a {one}, {format_bytes(growth.rise_bytes)} over "
        f"{growth.steps:,.0f} {many}"
    )


def _short(caller: str) -> str:
    """The file's name without its folder."""
    return re.sub(r"^.*[/\\]", "", caller)
