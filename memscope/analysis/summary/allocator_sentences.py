"""Sentences about growth, fragmentation and cache flushes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memscope.analysis.metrics.allocator import (
    cache_ratio,
    find_flushes,
    flushes_in_steps,
    unused_on,
)
from memscope.analysis.metrics.growth import (
    Growth,
    analyse_growth,
    measure_growth,
    time_until_full,
    unit_measured,
)
from memscope.analysis.metrics.metric import DeviceValue, Missing, Negligible
from memscope.analysis.summary.sentence import Sentence, SentenceKind
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import Fact
from memscope.units import format_bytes, format_seconds

HIGH_CACHE_RATIO = 0.2
USED_SHARE = 0.8  # allocated share of reserved memory at the peak: above, the cache was needed
SMALL_RISE = 64 << 20  # bytes over the run: smaller growth is not reported
OFTEN = 0.05  # flushes per step


def write_allocator_sentences(timeline: Timeline) -> Iterator[Sentence]:
    """Sentences on leaks, growth outside torch and on the host, fragmentation and flushes."""
    yield from _leaks(timeline)
    yield from _host_growth(timeline)
    yield from _fragmentation(timeline)
    yield from _flushes(timeline)


def _leaks(timeline: Timeline) -> Iterator[Sentence]:
    full = time_until_full(timeline)
    until = ""
    if isinstance(full, DeviceValue):
        until = f"; {full.place or 'the device'} is full in {format_seconds(full.value)}"
    for device, growth in _plain_growth(timeline, "allocated"):
        less_kv = ", without known KV" if "model.kv_bytes" in timeline.series else ""
        text = (
            f"Leak: allocated memory{_place(timeline, device)} grows by "
            f"{_a_step(timeline, growth)} (growth.allocated{less_kv}): the program keeps "
            f"something from each step{until}."
        )
        yield Sentence(SentenceKind.LEAK, text)
    for device, growth in _plain_growth(timeline, "outside"):
        text = (
            f"Leak outside torch: the process grows{_place(timeline, device)} by "
            f"{_a_step(timeline, growth)} beyond what torch reserves (growth.outside): a library "
            f"allocates memory itself{until}."
        )
        yield Sentence(SentenceKind.LEAK_OUTSIDE_TORCH, text)


def _host_growth(timeline: Timeline) -> Iterator[Sentence]:
    for readings in timeline.readings_of("host.rss_bytes").values():
        growth = measure_growth(timeline, readings.series)
        if isinstance(growth, Growth) and growth.is_notable and growth.rise_bytes >= SMALL_RISE:
            text = (
                f"Host memory: this process's RSS grows by {_a_step(timeline, growth)} "
                "(host.rss_bytes.growth): the program keeps something, or reads more of a mapped "
                "file."
            )
            yield Sentence(SentenceKind.HOST_GROWTH, text)


def _plain_growth(timeline: Timeline, kind: str) -> list[tuple[int, Growth]]:
    """The device with the fastest growth, among devices where the growth is clear."""
    found = analyse_growth(timeline, kind).items()
    plain = [(device, growth) for device, growth in found if growth.is_notable]
    return sorted(plain, key=lambda each: -each[1].slope)[:1]


def _place(timeline: Timeline, device: int) -> str:
    return f" on cuda:{device}" if len(timeline.counters) > 1 else ""


def _fragmentation(timeline: Timeline) -> Iterator[Sentence]:
    ratio = cache_ratio(timeline)
    if isinstance(ratio, Missing):
        return
    more = {
        device: f", {_a_step(timeline, growth)} more"
        for device, growth in _plain_growth(timeline, "reserved_gap")
        if growth.rise_bytes >= SMALL_RISE
    }
    is_high = (
        not isinstance(ratio, Negligible)
        and ratio.value > HIGH_CACHE_RATIO
        and not _is_used_at_peak(timeline)
    )
    highest = ratio.value if isinstance(ratio, Negligible) else ratio
    device = highest.device if is_high else next(iter(more), None)
    unused = None if device is None else unused_on(timeline, device)
    if device is None or unused is None:
        return
    text = (
        f"Fragmentation: {unused.ratio:.0%} of what torch reserves{_place(timeline, device)} "
        f"({format_bytes(unused.bytes)}{more.get(device, '')}) is free within steps but does not "
        "fit the requests (allocator.cache_ratio), because sizes vary. "
        f"{_fragmentation_advice(timeline)}"
    )
    yield Sentence(SentenceKind.FRAGMENTATION, text)


def _fragmentation_advice(timeline: Timeline) -> str:
    if timeline.fact(Fact.ALLOCATOR, "is_expandable"):
        return "Pad batches and lengths to a few sizes."
    return "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or pad to a few sizes."


def _is_used_at_peak(timeline: Timeline) -> bool:
    """Whether tensors filled the reserved memory at some moment; the cache is then no waste."""
    series = timeline.series
    allocated, reserved = series.get("torch.peak_allocated_bytes"), series["torch.reserved_bytes"]
    return allocated is not None and allocated.peak >= USED_SHARE * reserved.peak


def _flushes(timeline: Timeline) -> Iterator[Sentence]:
    count, steps = flushes_in_steps(timeline), len(timeline.measured_steps)
    if isinstance(count, Missing) or count < OFTEN * steps or not count:
        return
    flushes = find_flushes(timeline)
    text = (
        f"torch.cuda.empty_cache() ran {count:,.0f} times in {steps:,} steps "
        f"(allocator.flushes_in_steps), mostly from {_short(flushes.caller)}. Each call took "
        f"{format_seconds(flushes.mean_ns / 1e9)} and freed {format_bytes(flushes.mean_bytes)}, "
        "which the next step requests from the driver again. Remove it from the loop."
    )
    yield Sentence(SentenceKind.FLUSHES, text)


def _a_step(timeline: Timeline, growth: Growth) -> str:
    """ "4.0 MiB a step, 1.2 GiB over 300 steps" """
    is_steps = unit_measured(timeline, "a step") == "a step"
    one, many = ("step", "steps") if is_steps else ("second", "seconds")
    return (
        f"{format_bytes(growth.slope)} a {one}, {format_bytes(growth.rise_bytes)} over "
        f"{growth.steps:,.0f} {many}"
    )


def _short(caller: str) -> str:
    """The file name without its folder."""
    return re.sub(r"^.*[/\\]", "", caller)
