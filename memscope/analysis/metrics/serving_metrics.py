"""Metrics of out-of-memory errors and of a paged KV cache."""

from __future__ import annotations

from memscope.analysis.metrics.definition import DefaultLimit, MetricDefinition
from memscope.analysis.metrics.kv_blocks import (
    peak_utilisation,
    request_oom_rate,
    unused_slot_ratio,
)
from memscope.analysis.metrics.metric import Measured, Missing
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import Fact, probe_fact

PROBE = probe_fact("oom")
SERVING = "programs that serve requests"
PAGED = "programs that keep their KV cache in blocks"


def _engine_ooms(timeline: Timeline) -> Measured:
    count = timeline.oom_counts["engine"]
    is_watched = timeline.fact(PROBE, "watches") is not None or Fact.RUN_KIND in timeline.facts
    if count or is_watched:
        return count
    reason = timeline.fact(PROBE, "absent")
    return Missing(
        f"out-of-memory errors are not seen here: {reason}"
        if isinstance(reason, str)
        else "nothing in this program records out-of-memory errors"
    )


OOM_METRICS = (
    MetricDefinition(
        "oom.engine_count",
        "errors",
        "out-of-memory errors, without requests that a server rejected",
        lambda results: _engine_ooms(results.timeline),
        "the whole recording",
        "programs that record out-of-memory errors",
        (DefaultLimit("== 0"),),
        "See what was requested, what was free and what helps: `memscope explain RECORDING`.",
        "lower",
        needs_device=False,
    ),
    MetricDefinition(
        "oom.request_rate",
        "ratio",
        "requests lost for lack of memory / all requests submitted",
        lambda results: request_oom_rate(results.timeline),
        "the whole recording",
        SERVING,
        (DefaultLimit("== 0"),),
        "Give the KV cache more blocks, or admit fewer requests at once.",
        "lower",
        needs_device=False,
    ),
)

KV_METRICS = (
    MetricDefinition(
        "kv.peak_utilisation",
        "ratio",
        "KV blocks held by requests / all KV blocks",
        lambda results: peak_utilisation(results.timeline),
        "the peak while there are requests",
        PAGED,
        (DefaultLimit(">= 0.7"), DefaultLimit("<= 0.95")),
        "Size the KV cache by its peak: fewer blocks if it stays empty, more if it is full.",
    ),
    MetricDefinition(
        "kv.unused_slot_ratio",
        "ratio",
        "unused slots in requests' last KV blocks / all slots held",
        lambda results: unused_slot_ratio(results.timeline),
        "median of the readings while requests hold blocks",
        PAGED,
        advice="The last blocks are partly empty: use smaller KV blocks.",
        direction="lower",
        slack=0.02,
    ),
)
