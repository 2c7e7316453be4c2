"""What a metric or a reading came to before, and the limit that this makes."""

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
# What sampling alone may move a reading by, in its unit.
_SLACK = {"ratio": SLACK_RATIO, "bytes/step": SLACK_GROWTH, "bytes/s": SLACK_GROWTH}


@dataclass(frozen=True, slots=True)
class Expected:
    """``value`` in ``unit``; ``better`` is "lower" or "higher".

    ``tolerance``: a share, None where the file has none.
    """

    metric: str
    value: float
    unit: str
    better: str
    tolerance: float | None = None

    @property
    def is_reading(self) -> bool:
        """Whether it is no row of the table, so that a file must say which way is better."""
        return find_definition(self.metric) is None

    @property
    def is_of_memory(self) -> bool:
        """Whether it is a size, or what one grows by."""
        return self.unit.startswith("bytes")

    def repeats(self, *, is_elsewhere: bool) -> bool:
        """Whether it holds here; ``is_elsewhere``: on a machine of another class."""
        row = find_definition(self.metric)
        return not is_elsewhere or (row.repeats if row else ON_ONE_CLASS) == ON_ANY_MACHINE

    def limit(self, tolerance: float) -> Limit:
        """No worse than this by more than the tolerance, or what sampling alone may do."""
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
    """Which way ``name`` is better, "" where a baseline does not hold it.

    Of a metric the table says it; of a reading or a ratio the ``limits`` on it, where all of them
    hold it to one side.
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
