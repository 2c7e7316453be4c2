"""Read a recording into a timeline, up to the moment given by ``--at``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from memscope.analysis.timeline.moment import Moment, batches_until, check_batch, parse_moment
from memscope.analysis.timeline.step_numbers import find_first_own
from memscope.analysis.timeline.timeline import Timeline
from memscope.events import Kind
from memscope.format.batch import Batch
from memscope.reader.recording import Recording

JOINED_ROWS = 1 << 16
JOINED_BYTES = 1 << 26
DEVICE_READINGS = ("torch.allocated_bytes", "nvml.process_bytes")
HOST_READING = "host.rss_bytes"
SAME_MOMENT_NS = 10_000_000


def read_timeline(
    recording: Recording, *, at: str = "end", warmup_steps: int | None = None
) -> Timeline:
    """Fold ``recording`` up to ``at`` (batch:N, step:N, 12.5s, peak, end).

    Raises MemscopeError if ``at`` is not such a moment, and PastEnd if the recording ends
    before it.
    """
    timeline = Timeline(recording.header, warmup_steps=warmup_steps)
    for batch, count in join_batches(batches_at(recording, at)):
        timeline.add(batch, batches=count)
    return timeline


def batches_at(recording: Recording, at: str) -> Iterator[Batch]:
    """The batches of ``recording`` up to ``at``. Raises MemscopeError if ``at`` is not in it."""
    moment, first = parse_moment(at), 0
    if moment.kind == "peak":
        moment = find_peak(recording, read_timeline(recording))  # in recorded numbers
    elif moment.kind == "step":
        first = find_first_own(recording.batches())
    if moment.kind == "batch":
        check_batch(moment, recording.state.batches)
        return recording.batches(moment.value)
    if moment.kind == "end":
        return recording.batches()
    return batches_until(recording.batches(), moment, first_step=first)


def find_peak(recording: Recording, timeline: Timeline) -> Moment:
    """The moment with most memory: the end of the first step that has the peak.

    Without such a step, it is the highest reading or driver call, or else the end.
    """
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
    """The moment just after the highest reading, which includes other readings taken with it."""
    reading_name = next((name for name in reading_names if name in timeline.series), None)
    if reading_name is None:
        return None
    peak = timeline.series[reading_name].peak
    for batch, _ in join_batches(recording.batches()):
        codes, names = batch.names
        if reading_name in names:
            is_reading = (codes == names.index(reading_name)) & (batch["kind"] == Kind.SAMPLE)
            peaks = np.flatnonzero(is_reading & (batch["bytes"] >= peak))
            if len(peaks):
                after_ns = int(batch["t_ns"][peaks[0]]) + SAME_MOMENT_NS
                return Moment("time", min(after_ns, timeline.last_ns))
    return None


def join_batches(batches: Iterable[Batch]) -> Iterator[tuple[Batch, int]]:
    """Yield batches joined to about ``JOINED_ROWS`` rows, with the number joined in each.

    Folding a hundred rows takes as long as folding some thousands.
    """
    waiting: list[Batch] = []
    rows = size = 0
    for batch in batches:
        if waiting and waiting[-1].is_thinned != batch.is_thinned:
            yield _join(waiting), len(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.rows
        size += batch.record.nbytes
        if rows >= JOINED_ROWS or size >= JOINED_BYTES:
            yield _join(waiting), len(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _join(waiting), len(waiting)


def _join(batches: list[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches([batch.record for batch in batches]).combine_chunks()
    records = table.to_batches()
    if not records:
        return batches[0]
    return Batch(records[0], batches[-1].sequence, is_thinned=batches[-1].is_thinned)
