"""Peak memory of the process on its devices, and how much it may use."""

from __future__ import annotations

from memscope.analysis.metrics.metric import DeviceValue, Measured, Missing, highest_of
from memscope.analysis.timeline.facts import Device, read_devices
from memscope.analysis.timeline.readings import MAX_BYTES
from memscope.analysis.timeline.series import Series
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import probe_fact

NO_DEVICE = Missing("no device is recorded")
NO_PEAK = Missing("driver calls of old steps were kept only as sums, or deleted")
NO_READING = Missing("neither driver calls nor torch's counters are recorded")


def find_devices(timeline: Timeline) -> dict[int, Device]:
    """Index → device, as the program named it or torch used it."""
    return read_devices(timeline.facts)


def find_device(timeline: Timeline) -> Device | None:
    """The first device; None if there is none."""
    return next(iter(find_devices(timeline).values()), None)


def peak_bytes(timeline: Timeline) -> DeviceValue | Missing:
    """Most bytes that this process held on one device: torch reserved plus driver calls.

    On a host device: the most bytes that it handed out.
    """
    peaks = _own_peaks(timeline)
    return peaks if isinstance(peaks, Missing) else highest_of(peaks)


def peak_ratio(timeline: Timeline) -> DeviceValue | Missing:
    """Peak memory on one device / the memory that may be used there."""
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
    """GPU → peak bytes there: NVML's reading or ``peak_bytes``, whichever is more.

    NVML's reading includes the context and libraries. Empty if nothing was read.
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
    """Device → peak bytes of this process. Driver calls belong to the first device.

    Devices without memory are left out, unless no device has any.
    """
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
    """Device → peak reserved bytes. Readings without a device belong to the ``first`` one."""
    peaks: dict[int, int] = {}
    for reading_name in ("torch.reserved_bytes", "torch.peak_reserved_bytes"):
        for index, readings in timeline.readings_of(reading_name).items():
            place = index if index >= 0 else first
            peaks[place] = max(peaks.get(place, 0), _peak(readings.series))
    return peaks


def _peak(series: Series) -> int:
    return int(min(series.peak, MAX_BYTES))


def host_bytes(timeline: Timeline) -> int | None:
    """Peak RSS of the process in bytes; None if it was not read."""
    names = ("host.rss_bytes", "host.peak_rss_bytes")
    peaks = [_peak(timeline.series[name]) for name in names if name in timeline.series]
    return max(peaks, default=None)


def host_peak_bytes(timeline: Timeline) -> Measured:
    """The metric of ``host_bytes``, or why it is missing."""
    peak = host_bytes(timeline)
    if peak is not None:
        return peak
    facts = (
        timeline.fact(probe_fact("host"), "absent"),
        timeline.fact(probe_fact("host"), "stopped"),
    )
    reason = next((f": {fact}" for fact in facts if isinstance(fact, str)), "")
    return Missing(f"host.rss_bytes is not sampled{reason}")
