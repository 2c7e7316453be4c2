"""Memory that the process held on its device, against what it may use."""

from __future__ import annotations

from memscope.analysis.metrics.metric import DeviceValue, Measured, Missing, highest_of
from memscope.analysis.timeline.facts import Device, read_devices
from memscope.analysis.timeline.readings import MAX_BYTES
from memscope.analysis.timeline.series import Series
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import probe_fact

NO_DEVICE = Missing("no device is recorded")
NO_PEAK = Missing("driver calls of old steps are sums alone, or older than is kept")
NO_READING = Missing("neither driver calls nor torch's counters are recorded")


def find_devices(timeline: Timeline) -> dict[int, Device]:
    """Devices by index, as the program named them or torch used them."""
    return read_devices(timeline.facts)


def find_device(timeline: Timeline) -> Device | None:
    """The first device; None if there is none."""
    return next(iter(find_devices(timeline).values()), None)


def peak_bytes(timeline: Timeline) -> DeviceValue | Missing:
    """The most this process held on one device: torch's reserved bytes, and what driver calls took.

    On a host device what it handed out.
    """
    peaks = _own_peaks(timeline)
    return peaks if isinstance(peaks, Missing) else highest_of(peaks)


def peak_ratio(timeline: Timeline) -> DeviceValue | Missing:
    """The most held on one device over what may be used of that device."""
    peaks = _own_peaks(timeline)
    if isinstance(peaks, Missing):
        return peaks
    devices = find_devices(timeline)
    usable = {index: devices[index].usable_bytes for index in peaks if index in devices}
    sizes = {index: size for index, size in usable.items() if size}
    if unknown := [index for index in peaks if index not in sizes]:
        which = f"cuda:{unknown[0]}" if len(peaks) > 1 else "the device"
        return Missing(f"the size of {which} is not recorded")
    return highest_of({index: peak / sizes[index] for index, peak in peaks.items()})


def held_by_device(timeline: Timeline) -> dict[int, int]:
    """GPU → the most held there, by NVML or as ``peak_bytes``, whichever is more.

    NVML's metric has the context and what libraries took in it. Empty where nothing was read.
    """
    devices = find_devices(timeline)
    if not devices or devices[min(devices)].is_host:
        return {}
    own = _own_peaks(timeline)
    held = _torch_peaks(timeline, min(devices)) if isinstance(own, Missing) else dict(own)
    for index, series in timeline.device_series("nvml.process_bytes").items():
        place = index if index >= 0 else min(devices)
        if series.peak:
            held[place] = max(held.get(place, 0), _peak(series))
    some = {index: size for index, size in held.items() if size}
    return dict(sorted((some or held).items()))


def _own_peaks(timeline: Timeline) -> dict[int, int] | Missing:
    """Device → the most that this process took there; those where it took nothing are left out
    unless it took nothing anywhere. Driver calls are of the first device."""
    devices = find_devices(timeline)
    if not devices:
        return NO_DEVICE
    first, series = min(devices), timeline.series
    raw = [timeline.driver.peak_bytes] if timeline.driver.calls else []
    raw += [
        _peak(series[name])
        for name in ("device.peak_bytes", "device.allocated_bytes")
        if name in series
    ]
    if not timeline.driver.is_peak_known and "device.peak_bytes" not in series:
        return NO_PEAK
    if devices[first].is_host:
        return {first: max(raw)} if raw else NO_READING
    if "torch.reserved_bytes" not in series:
        return Missing("torch's reserved bytes are not recorded")
    peaks = _torch_peaks(timeline, first)
    peaks[first] = peaks.get(first, 0) + max(raw, default=0)
    return {index: peak for index, peak in peaks.items() if peak} or {first: 0}


def _torch_peaks(timeline: Timeline, first: int) -> dict[int, int]:
    """Device → the most that torch reserved; what was read without a device is the first one's."""
    peaks: dict[int, int] = {}
    for reading_name in ("torch.reserved_bytes", "torch.peak_reserved_bytes"):
        for index, readings in timeline.readings_of(reading_name).items():
            place = index if index >= 0 else first
            peaks[place] = max(peaks.get(place, 0), _peak(readings.series))
    return peaks


def _peak(series: Series) -> int:
    return int(min(series.peak, MAX_BYTES))


def host_bytes(timeline: Timeline) -> int | None:
    """The most that the process had resident on the host."""
    names = ("host.rss_bytes", "host.peak_rss_bytes")
    peaks = [_peak(timeline.series[name]) for name in names if name in timeline.series]
    return max(peaks, default=None)


def host_peak_bytes(timeline: Timeline) -> Measured:
    """``host_bytes`` as a metric."""
    peak = host_bytes(timeline)
    if peak is not None:
        return peak
    facts = (
        timeline.fact(probe_fact("host"), "absent"),
        timeline.fact(probe_fact("host"), "stopped"),
    )
    reason = next((f": {fact}" for fact in facts if isinstance(fact, str)), "")
    return Missing(f"host.rss_bytes is not sampled{reason}")
