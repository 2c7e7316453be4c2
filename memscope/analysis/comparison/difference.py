"""The difference of two recordings or snapshots, and limits on it.

The metrics of a difference are named ``diff.METRIC``: the second value minus the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from memscope.analysis.comparison.run_settings import Setting
from memscope.analysis.limits.limits import Verdict, judge, parse_limit
from memscope.analysis.metrics.metric import Metric
from memscope.errors import MemscopeError

PREFIX = "diff."
_LIMIT = re.compile(r"\s*(\S+?)\s*((?:<=|>=|==|!=|<|>).*)", re.S)
# A limit on a snapshot's metric is parsed as one on this metric, which is in bytes.
_BYTES_METRIC = "memory.peak_bytes"


class Compared(StrEnum):
    """What was compared."""

    RECORDINGS = "recordings"
    SNAPSHOTS = "snapshots"


@dataclass(frozen=True, slots=True)
class Change:
    """A metric or a holder of memory, before and after. ``reason``: why a value is None."""

    name: str
    before: float | None
    after: float | None
    unit: str
    reason: str | None = None

    @property
    def value(self) -> float | None:
        """After minus before; None if either is missing."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def value_unit(self) -> str:
        """The unit of ``value``. The change of a ratio is in percentage points."""
        return "points" if self.unit == "ratio" else self.unit

    @property
    def relative(self) -> float:
        """The change divided by the value before; infinite if that was 0, 0 without a change."""
        if not self.value or not self.before:
            return float("inf") if self.value else 0.0
        return self.value / abs(self.before)

    def to_json(self) -> dict[str, Any]:
        """As ``diff --json`` prints it."""
        return {
            "before": self.before,
            "after": self.after,
            "value": self.value,
            "unit": self.unit,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """Two recordings or two snapshots, compared.

    ``metrics``: the largest change first. ``holders``: for snapshots, what grew, by call stack,
    label and stream, the largest growth first. ``settings``: how the recordings were made; None
    for snapshots.
    """

    kind: Compared
    metrics: tuple[Change, ...]
    holders: Mapping[str, tuple[Change, ...]]
    is_partial: bool = False
    settings: tuple[Setting, ...] | None = None

    def find(self, name: str) -> Change | None:
        """The metric ``name``, like "diff.memory.peak_bytes", or its last part if unique."""
        short = name.removeprefix(PREFIX)
        for change in self.metrics:
            if change.name == short:
                return change
        close = [each for each in self.metrics if _short(each.name) == short]
        return close[0] if len(close) == 1 else None


def _short(name: str) -> str:
    """The last part of a name. Host metrics keep theirs, so ``peak_bytes`` is the device's."""
    return name if name.startswith("host.") else name.rpartition(".")[2]


def judge_difference(difference: Difference, limits: Sequence[str]) -> tuple[Verdict, ...]:
    """Verdicts on limits like "diff.peak_bytes <= 64 MiB". Raises MemscopeError."""
    return tuple(_judge(difference, text) for text in limits)


def check_limits(limits: Sequence[str]) -> None:
    """Raises MemscopeError if a limit is not written as diff.METRIC OP VALUE."""
    for text in limits:
        _split(text)


def _judge(difference: Difference, text: str) -> Verdict:
    name, condition = _split(text)
    change = difference.find(name)
    if change is None:
        names = ", ".join(PREFIX + each.name for each in difference.metrics[:8])
        raise MemscopeError(
            f"{name!r} is not a metric of this difference.", f"Name one of {names}."
        )
    measured_as = _BYTES_METRIC if difference.kind is Compared.SNAPSHOTS else change.name
    limit = parse_limit(f"{measured_as} {condition}", is_of_change=True)
    limit = replace(limit, text=" ".join(text.split()))
    metric = Metric(measured_as, change.value, change.unit, change.reason)
    verdict = next(each for each in judge({measured_as: metric}, [limit]) if each.is_named)
    return replace(verdict, metric=PREFIX + change.name, unit=change.value_unit, advice="")


def _split(text: str) -> tuple[str, str]:
    match = _LIMIT.fullmatch(text)
    if match is None or not match[1].startswith(PREFIX):
        raise MemscopeError(
            f"{text!r} is not a limit on a difference.",
            "Write diff.METRIC OP VALUE, like 'diff.peak_bytes <= 64 MiB'.",
        )
    return match[1], match[2]
