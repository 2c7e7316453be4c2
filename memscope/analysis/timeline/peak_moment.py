"""When memory was at its most, as ``--at peak`` asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memscope.analysis.timeline.gather import gather
from memscope.analysis.timeline.moment import Moment
from memscope.events import Kind

if TYPE_CHECKING:
    from memscope.analysis.timeline.timeline import Timeline
    from memscope.reader.recording import Recording

DEVICE_READINGS = ("torch.allocated_bytes", "nvml.process_bytes")
HOST_READING = "host.rss_bytes"
SAME_MOMENT_NS = 10_000_000


def find_peak(recording: Recording, timeline: Timeline) -> Moment:
    """The end of the first step in which memory was at its most; by readings or driver calls where
    steps do not tell, and the recording's end where nothing does."""
    return (
        _peak_step(timeline)
        or _peak_reading(recording, timeline, DEVICE_READINGS)
        or _peak_call(timeline)
        or _peak_reading(recording, timeline, (HOST_READING,))
        or Moment("end")
    )


def _peak_step(timeline: Timeline) -> Moment | None:
    steps = timeline.steps
    for column in (steps.device_peak_bytes, steps.allocated_bytes, steps.peak_resident_bytes):
        if len(steps) and column.max() > 0:
            return Moment("step", int(steps.step[np.argmax(column)]) + timeline.first_own_step)
    return None


def _peak_call(timeline: Timeline) -> Moment | None:
    driver = timeline.driver
    return Moment("time", driver.peak_ns) if driver.peak_bytes and driver.is_peak_known else None


def _peak_reading(
    recording: Recording, timeline: Timeline, reading_names: tuple[str, ...]
) -> Moment | None:
    """Just after the highest reading of memory: the others of that moment come with it."""
    reading_name = next((name for name in reading_names if name in timeline.series), None)
    if reading_name is None:
        return None
    peak = timeline.series[reading_name].peak
    for batch, _ in gather(recording.batches()):
        codes, names = batch.names
        if reading_name in names:
            is_reading = (codes == names.index(reading_name)) & (batch["kind"] == Kind.SAMPLE)
            found = np.flatnonzero(is_reading & (batch["bytes"] >= peak))
            if len(found):
                after_ns = int(batch["t_ns"][found[0]]) + SAME_MOMENT_NS
                return Moment("time", min(after_ns, timeline.last_ns))
    return None
