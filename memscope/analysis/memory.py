"""Memory that the process held on its device, against what it may use."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memscope.analysis.figure import Measured, Missing
from memscope.analysis.timeline import Timeline

NO_DEVICE = Missing("no device is recorded")
NO_PEAK = Missing("driver calls of old steps are sums alone, or older than is kept")
NO_READING = Missing("neither driver calls nor torch's counters are recorded")


@dataclass(frozen=True, slots=True)
class Device:
    """The device of a recording, as it said itself. ``kind`` is "host" or "cuda"."""

    name: str
    kind: str
    total_bytes: int | None
    limit_bytes: int | None

    @property
    def is_host(self) -> bool:
        """Whether it is the machine's own memory: no figure of it is a GPU figure."""
        return self.kind == "host"

    @property
    def usable_bytes(self) -> int | None:
        """The device's memory or the limit set on it, whichever is less."""
        sizes = [size for size in (self.total_bytes, self.limit_bytes) if size]
        return min(sizes, default=None)


def find_device(timeline: Timeline) -> Device | None:
    """The first device, as the program named it or torch used it; None where neither did."""
    used = sorted(key for key in timeline.facts if re.fullmatch(r"cuda\.\d{1,4}", key))
    key = next((key for key in ("device.0", *used) if key in timeline.facts), "")
    if not isinstance(timeline.facts.get(key), dict):
        return None
    return Device(
        name=str(timeline.fact(key, "name")),
        kind=str(timeline.fact(key, "kind")),
        total_bytes=timeline.count_fact(key, "total_bytes"),
        limit_bytes=timeline.count_fact(key, "limit_bytes"),
    )


def peak_bytes(timeline: Timeline) -> Measured:
    """The most this process held: torch's reserved bytes, and what driver calls took.

    On a host device what it handed out.
    """
    device = find_device(timeline)
    if device is None:
        return NO_DEVICE
    series = timeline.series
    raw = [timeline.driver.peak_bytes] if timeline.driver.calls else []
    raw += [
        int(series[name].peak)
        for name in ("device.peak_bytes", "device.allocated_bytes")
        if name in series
    ]
    if not timeline.driver.is_peak_known and "device.peak_bytes" not in series:
        return NO_PEAK
    if device.is_host:
        return max(raw) if raw else NO_READING
    if "torch.reserved_bytes" not in series:
        return Missing("torch's reserved bytes are not recorded")
    registers = ("torch.reserved_bytes", "torch.peak_reserved_bytes")
    reserved = max(int(series[name].peak) for name in registers if name in series)
    return reserved + max(raw, default=0)


def peak_ratio(timeline: Timeline) -> Measured:
    """``peak_bytes`` over what may be used of the device."""
    peak, device = peak_bytes(timeline), find_device(timeline)
    if isinstance(peak, Missing):
        return peak
    usable = device.usable_bytes if device else None
    return peak / usable if usable else Missing("the device's size is not recorded")


def held_bytes(timeline: Timeline) -> int | None:
    """The most held on GPUs: each one's peak by NVML or by torch, added; None without a GPU."""
    device = find_device(timeline)
    if device is None or device.is_host:
        return None
    own = peak_bytes(timeline)
    peaks: dict[int, int] = {}
    for metric in ("nvml.process_bytes", "torch.reserved_bytes"):
        for index, series in timeline.device_series(metric).items():
            peaks[index] = max(peaks.get(index, 0), int(series.peak))
    sizes = [sum(peaks.values())] if peaks else []
    return max(sizes + ([] if isinstance(own, Missing) else [int(own)]), default=None)


def host_bytes(timeline: Timeline) -> int | None:
    """The most that the process had resident on the host."""
    series = timeline.series.get("host.rss_bytes")
    return None if series is None else int(series.peak)


def host_peak_bytes(timeline: Timeline) -> Measured:
    """``host_bytes`` as a figure."""
    peak = host_bytes(timeline)
    if peak is not None:
        return peak
    facts = (timeline.fact("probe.host", "absent"), timeline.fact("probe.host", "stopped"))
    reason = next((f": {fact}" for fact in facts if isinstance(fact, str)), "")
    return Missing(f"host.rss_bytes is not sampled{reason}")
