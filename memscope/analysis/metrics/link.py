"""Upload rate compared with the rate of the host-to-device link."""

from __future__ import annotations

from memscope.analysis.metrics.memory import find_device
from memscope.analysis.metrics.metric import Measured, Missing
from memscope.analysis.metrics.residency import NO_WINDOW, ONLY_WARMUP
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import Fact

ON_HOST = Missing("on a host device copies do not cross a link")
NO_RATE = Missing("the link's rate from pinned memory at this copy size is not recorded")
NOT_TIMED = Missing("uploads are not timed on the device")
NOTHING_UPLOADED = Missing("nothing is uploaded after warm-up", False)


def link_ratio(timeline: Timeline) -> Measured:
    """Upload rate / the rate from pinned memory that the run measured with its own slabs.

    Counts steps after warm-up whose uploads were all timed.
    """
    device = find_device(timeline)
    if device is not None and device.is_host:
        return ON_HOST
    if not timeline.counts.get("upload"):
        return NO_WINDOW
    rate = timeline.count_fact(Fact.LINK, "pinned_bytes_per_s")
    if not rate:
        return NO_RATE
    steps = timeline.measured_steps
    if not len(steps):
        return ONLY_WARMUP
    if not steps.upload_bytes.any():
        return NOTHING_UPLOADED
    is_timed = steps.upload_duration_ns > 0
    seconds = float(steps.upload_duration_ns[is_timed].sum()) / 1e9
    return float(steps.upload_bytes[is_timed].sum()) / seconds / rate if seconds else NOT_TIMED
