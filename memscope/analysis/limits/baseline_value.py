"""An earlier value of a metric or a reading, and the limit that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memscope.analysis.limits.limits import Limit
from memscope.analysis.metrics.definition import (
    IN_NO_OTHER_RUN,
    ON_ANY_MACHINE,
    ON_ONE_CLASS,
)
from memscope.analysis.metrics.expression import parse_expression
from memscope.analysis.metrics.memory_metrics import SLACK_GROWTH, SLACK_RATIO
from memscope.analysis.metrics.table import MetricDefinition, find_definition
from memscope.units import format_value

BETTER = ("lower", "higher")
# How much sampling alone may change a reading, in its unit.
_SLACK = {"ratio": SLACK_RATIO, "bytes/step": SLACK_GROWTH, "bytes/s": SLACK_GROWTH}


@dataclass(frozen=True, slots=True)
class BaselineValue:
    """``value`` in ``unit``. ``better`` is "lower" or "higher".

    ``tolerance``: a share; None if the file has none.
    """

    metric: str
    value: float
    unit: str
    better: str
    tolerance: float | None = None

    @property
    def is_reading(self) -> bool:
        """Whether it is not in the table of metrics, so the file must say what is better."""
        return find_definition(self.metric) is None

    @property
    def is_of_memory(self) -> bool:
        """Whether it is a size, or the growth of one."""
        return self.unit.startswith("bytes")

    def repeats(self, *, is_elsewhere: bool) -> bool:
        """Whether the value applies. ``is_elsewhere``: this is another class of machine."""
        row = find_definition(self.metric)
        return not is_elsewhere or (row.repeats if row else ON_ONE_CLASS) == ON_ANY_MACHINE

    def limit(self, tolerance: float) -> Limit:
        """The limit: not worse by more than the tolerance, or by what sampling alone may change."""
        row = find_definition(self.metric)
        share = tolerance if self.tolerance is None else self.tolerance
        slack = row.slack if row else _SLACK.get(self.unit, 0.0)
        room = max(abs(self.value) * share, slack)
        comparison, sign = ("<=", "+") if self.better == "lower" else (">=", "−")
        allowed = format_value(self.value, self.unit)
        if room:
            is_slack = room > abs(self.value) * share
            by = format_value(room, self.unit) if is_slack else f"{share * 100:.3g} %"
            allowed = f"{allowed} {sign} {by}"
        return Limit(
            parse_expression(self.metric),
            comparison,
            self.value + room if self.better == "lower" else self.value - room,
            self.unit,
            text=f"{self.metric} {comparison} {allowed} (baseline)",
            bound=f"baseline {allowed}",
            is_default=True,
        )


def find_better(name: str, limits: Sequence[Limit] = ()) -> str:
    """Which direction of ``name`` is better; "" if a baseline does not hold it.

    For metrics the table says it. For readings and ratios the ``limits`` say it, if all of them
    bound it from the same side.
    """
    row = find_definition(name)
    if row is not None:
        return row.direction if _is_repeated(row) else ""
    sides = {
        BETTER[limit.comparison.startswith(">")] if limit.comparison.startswith(("<", ">")) else ""
        for limit in limits
        if limit.metric == name
    }
    return sides.pop() if len(sides) == 1 else ""


def _is_repeated(row: MetricDefinition) -> bool:
    return row.repeats != IN_NO_OTHER_RUN
