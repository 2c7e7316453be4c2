"""Every figure: its unit, its definition, its default limits, what to do when one is broken.

``FIGURES`` is the only table of them; its rows stand by area in the files that it is made of. A
figure that nothing records yet says what would record it.
"""

from __future__ import annotations

from memscope.analysis.metrics.figure import Figure, Missing, make_figure
from memscope.analysis.metrics.figure_definition import DefaultLimit, FigureDefinition, Results
from memscope.analysis.metrics.growth import unit_measured
from memscope.analysis.metrics.memory_figures import (
    ALLOCATOR_FIGURES,
    FRAGMENTATION_FIGURES,
    GROWTH_FIGURES,
    HOST_FIGURES,
    MEMORY_FIGURES,
)
from memscope.analysis.metrics.residency import analyse_residency
from memscope.analysis.metrics.serving_figures import KV_FIGURES, OOM_FIGURES
from memscope.analysis.metrics.weight_pool import WeightPool, analyse_weight_pool, hit_rate
from memscope.analysis.metrics.window_figures import POOL_FIGURES, RESIDENCY_FIGURES, STEP_FIGURES
from memscope.analysis.timeline.timeline import Timeline

__all__ = ["FIGURES", "DefaultLimit", "Figure", "FigureDefinition", "figures", "find_definition"]

FIGURES: tuple[FigureDefinition, ...] = (
    *MEMORY_FIGURES,
    *HOST_FIGURES,
    *RESIDENCY_FIGURES,
    *POOL_FIGURES,
    *STEP_FIGURES,
    *OOM_FIGURES,
    *ALLOCATOR_FIGURES,
    *KV_FIGURES,
    *FRAGMENTATION_FIGURES,
    *GROWTH_FIGURES,
)

_BY_NAME = {row.name: row for row in FIGURES}


def figures(timeline: Timeline) -> dict[str, Figure]:
    """Every figure of the table, in its order, and the pool's hit rate for each geometry."""
    results = Results(timeline, analyse_residency(timeline), analyse_weight_pool(timeline))
    found: dict[str, Figure] = {}
    for row in FIGURES:
        measured = row.measure(results)
        is_missing = isinstance(measured, Missing)
        unit = row.unit if is_missing else unit_measured(timeline, row.unit)
        found[row.name] = make_figure(row.name, unit, measured)
        if row.name == "pool.hit_rate":
            found |= _hit_rates(results.weight_pool)
    return found


def find_definition(name: str) -> FigureDefinition | None:
    """The row of a figure, of one geometry's ("pool.hit_rate[64x2]") as well."""
    return _BY_NAME.get(name.partition("[")[0])


def _hit_rates(pool: WeightPool) -> dict[str, Figure]:
    """One for each geometry that was asked for after warm-up."""
    found = {}
    for geometry in pool.geometries:
        rate = hit_rate(geometry.hits, geometry.misses)
        if not isinstance(rate, Missing):
            name = f"pool.hit_rate[{geometry.name}]"
            found[name] = make_figure(name, "ratio", rate)
    return found
