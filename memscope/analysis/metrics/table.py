"""The table of all metrics: units, definitions, default limits and advice.

``METRICS`` is the only such table. Its rows are grouped by area in the files that it imports.
"""

from __future__ import annotations

from memscope.analysis.metrics.definition import DefaultLimit, MetricDefinition, Results
from memscope.analysis.metrics.growth import unit_measured
from memscope.analysis.metrics.memory_metrics import (
    ALLOCATOR_METRICS,
    FRAGMENTATION_METRICS,
    GROWTH_METRICS,
    HOST_METRICS,
    MEMORY_METRICS,
)
from memscope.analysis.metrics.metric import Metric, Missing, make_metric
from memscope.analysis.metrics.residency import analyse_residency
from memscope.analysis.metrics.serving_metrics import KV_METRICS, OOM_METRICS
from memscope.analysis.metrics.weight_pool import WeightPool, analyse_weight_pool, hit_rate
from memscope.analysis.metrics.window_metrics import POOL_METRICS, RESIDENCY_METRICS, STEP_METRICS
from memscope.analysis.timeline.timeline import Timeline

__all__ = ["METRICS", "DefaultLimit", "Metric", "MetricDefinition", "find_definition", "metrics"]

METRICS: tuple[MetricDefinition, ...] = (
    *MEMORY_METRICS,
    *HOST_METRICS,
    *RESIDENCY_METRICS,
    *POOL_METRICS,
    *STEP_METRICS,
    *OOM_METRICS,
    *ALLOCATOR_METRICS,
    *KV_METRICS,
    *FRAGMENTATION_METRICS,
    *GROWTH_METRICS,
)

_BY_NAME = {row.name: row for row in METRICS}


def metrics(timeline: Timeline) -> dict[str, Metric]:
    """Every metric of the table, in its order, and the pool's hit rate for each geometry."""
    results = Results(timeline, analyse_residency(timeline), analyse_weight_pool(timeline))
    by_name: dict[str, Metric] = {}
    for row in METRICS:
        measured = row.measure(results)
        is_missing = isinstance(measured, Missing)
        unit = row.unit if is_missing else unit_measured(timeline, row.unit)
        by_name[row.name] = make_metric(row.name, unit, measured)
        if row.name == "pool.hit_rate":
            by_name |= _hit_rates(results.weight_pool)
    return by_name


def find_definition(name: str) -> MetricDefinition | None:
    """The definition of a metric, also for one geometry ("pool.hit_rate[64x2]")."""
    return _BY_NAME.get(name.partition("[")[0])


def _hit_rates(pool: WeightPool) -> dict[str, Metric]:
    """A hit rate for each geometry requested after warm-up."""
    rates = {}
    for geometry in pool.geometries:
        rate = hit_rate(geometry.hits, geometry.misses)
        if not isinstance(rate, Missing):
            name = f"pool.hit_rate[{geometry.name}]"
            rates[name] = make_metric(name, "ratio", rate)
    return rates
