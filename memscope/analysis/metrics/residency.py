"""Metrics of the residency window: uploads, avoidable uploads, and weights on the device."""

from __future__ import annotations

from dataclasses import dataclass

from memscope.analysis.metrics.metric import Measured, Missing
from memscope.analysis.timeline.steps import Steps
from memscope.analysis.timeline.timeline import Timeline

NO_WINDOW = Missing("no weight upload is recorded: this program has no residency window", False)
NO_STEP = Missing("no step has ended")
ONLY_WARMUP = Missing("no step has ended after warm-up")
UNFOLLOWED = Missing("events that say where layers were are kept only as sums, or deleted")


@dataclass(frozen=True, slots=True)
class Residency:
    """Metrics of a run with a window. Layers leave lm_head out; entries and bytes include it.

    ``uploads_per_step``: layers, the mean of steps after warm-up. ``avoidable_uploads``: that
    minus the fewest uploads that any policy needs with as many slabs as the peak holds.
    Entries, layers and bytes count weights ready for compute; an upload is in flight until its
    layer runs. Peaks are the highest values within any step; the other values are those at the
    end of the last step. ``held_bytes``: the most that resident, in-flight and idle weights
    took together.
    """

    uploads_per_step: Measured
    avoidable_uploads: Measured
    entries_at_step_end: Measured
    peak_entries: Measured
    peak_layers: Measured
    resident_bytes: Measured
    in_flight_bytes: Measured
    held_bytes: Measured


def analyse_residency(timeline: Timeline) -> Residency:
    """Compute the metrics of a recording's window."""
    missing = _missing(timeline)
    if missing is not None:
        return Residency(*[missing] * 8)
    steps, measured = timeline.steps, timeline.measured_steps
    uploads = float(measured.uploads.mean()) if len(measured) else ONLY_WARMUP
    if not timeline.is_window_known:
        return Residency(uploads, *[UNFOLLOWED] * 7)
    return Residency(
        uploads_per_step=uploads,
        avoidable_uploads=_avoidable(uploads, steps, timeline.layers),
        entries_at_step_end=int(steps.entries_at_end[-1]),
        peak_entries=int(steps.peak_entries.max()),
        peak_layers=int(steps.peak_layers.max()),
        resident_bytes=int(steps.resident_bytes[-1]),
        in_flight_bytes=int(steps.in_flight_bytes[-1]),
        held_bytes=_held(timeline),
    )


def least_uploads(layers: int, slabs: int) -> float:
    """Fewest layers that a sweep over ``layers`` must upload if ``slabs`` of them fit.

    L(L − C)/(L − 1): the result of Belady's rule (evict the layer needed last) on a cyclic
    sweep. A layer that runs takes at least one slab.
    """
    slabs = max(slabs, 1)
    if slabs >= layers:
        return 0.0
    return layers * (layers - slabs) / (layers - 1)


def wait_ms_per_step(timeline: Timeline) -> float | None:
    """Mean time in ms that compute waited for uploads per step; None without steps."""
    steps = timeline.measured_steps
    return float(steps.wait_ns.mean()) / 1e6 if len(steps) else None


def _missing(timeline: Timeline) -> Missing | None:
    if not timeline.counts.get("upload"):
        return NO_WINDOW
    if not timeline.are_uploads_known:
        lost = timeline.dropped["upload"]
        return Missing(f"{lost:,} uploads came too fast to record which layers they were")
    return None if len(timeline.steps) else NO_STEP


def _avoidable(uploads: Measured, steps: Steps, layers: int | None) -> Measured:
    if isinstance(uploads, Missing):
        return uploads
    if layers is None:
        return Missing("the number of layers is not recorded")
    return uploads - least_uploads(layers, int(steps.peak_held_layers.max()))


def _held(timeline: Timeline) -> Measured:
    if not timeline.pool_driver.calls:
        return Missing("no driver call for weights is recorded")
    return timeline.pool_driver.peak_bytes
