"""Metrics of a paged KV cache: blocks held at the peak, and unused slots in the last blocks.

The fact ``kv`` gives the number of ``blocks`` and the ``block_tokens`` of each block.
"""

from __future__ import annotations

import numpy as np

from memscope.analysis.metrics.metric import Measured, Missing
from memscope.analysis.timeline.serving_rows import HELD, UNUSED
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import Fact, RunKind

NO_BLOCK = Missing("no KV block is recorded")
ONE_BUFFER = Missing("this run keeps its KV cache in one buffer, not in blocks", False)


def peak_utilisation(timeline: Timeline) -> Measured:
    """KV blocks that requests held at the peak / all KV blocks.

    Readings of ``kv.held_blocks`` are preferred: only they count a shared block once.
    """
    missing = _missing(timeline)
    if missing is not None:
        return missing
    blocks = timeline.count_fact(Fact.KV, "blocks")
    if not blocks:
        return Missing("the number of KV blocks is not recorded")
    readings = timeline.readings_of(HELD)
    if readings:
        return max(each.series.peak for each in readings.values()) / blocks
    lost = sum(timeline.dropped.get(kind, 0) for kind in ("kv_block_alloc", "kv_block_free"))
    if lost:
        return Missing(f"{lost:,} events about KV blocks were dropped by the recorder")
    return timeline.serving.peak_blocks / blocks


def unused_slot_ratio(timeline: Timeline) -> Measured:
    """Unused slots in requests' last blocks / all slots held: the median of the readings."""
    missing = _missing(timeline)
    if missing is not None:
        return missing
    slots, unused = timeline.count_fact(Fact.KV, "block_tokens"), timeline.serving.unused
    if not len(unused):
        return Missing(f"{UNUSED} is not sampled while requests hold blocks")
    if not slots:
        return Missing("the number of tokens per KV block is not recorded")
    return float(np.median(unused.last)) / slots


def request_oom_rate(timeline: Timeline) -> Measured:
    """Requests lost for lack of memory / requests submitted."""
    submitted = timeline.counts.get("request_submit", 0)
    if not submitted:
        return Missing("no request is recorded: this program serves none", False)
    lost = timeline.dropped.get("request_submit", 0)
    if lost:
        return Missing(f"{lost:,} submitted requests were dropped by the recorder")
    return timeline.serving.lost_requests / submitted


def _missing(timeline: Timeline) -> Missing | None:
    if timeline.facts.get(Fact.RUN_KIND) == RunKind.DECODE:
        return ONE_BUFFER
    is_seen = timeline.counts.get("kv_block_alloc") or timeline.readings_of(HELD)
    return None if is_seen else NO_BLOCK
