"""Limits on metrics, readings and ratios, and the verdicts on them.

A limit is written METRIC OP VALUE. METRIC alone means its default limit.
"""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from memscope.analysis.limits.value_parsing import (
    example_value,
    is_per_second,
    parse_value,
    per_second,
)
from memscope.analysis.metrics.expression import MetricExpression, parse_expression
from memscope.analysis.metrics.metric import Metric, value_words
from memscope.analysis.metrics.table import (
    METRICS,
    DefaultLimit,
    MetricDefinition,
    find_definition,
)
from memscope.errors import MemscopeError
from memscope.reader.scanner import State
from memscope.text import clean


class Outcome(StrEnum):
    """What a verdict can be. The values are the words that people read."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    NOT_MEASURED = "not measured"
    NOT_APPLICABLE = "not applicable"


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}
_LIMIT = re.compile(r"([^<>=!]*?)(?:(<=|>=|==|!=|<|>)(.*))?", re.S)
RECORDING = "RECORDING"  # in advice: stands for the path of the recording
_A_SECOND_OF_STEPS = "the limit is per second, but this program has steps and is measured per step"
_SEE_PEAK = f"See what holds memory at the peak: `memscope report {RECORDING}`."
_SEE_GROWTH = (
    f"It rises from step to step. `memscope report {RECORDING}` shows since when; then look for "
    "what is kept from one step to the next."
)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of ``value``, in ``unit``. Without ``comparison`` it means the metric's defaults.

    ``bound``: the limit in words. ``warn``: a tighter limit that only warns. ``is_default``: the
    value comes from the table of metrics or a baseline, not from the user.
    """

    expression: MetricExpression
    comparison: str = ""
    value: float = 0.0
    unit: str = ""
    text: str = ""
    bound: str = ""
    warn: Limit | None = None
    is_default: bool = False

    @property
    def metric(self) -> str:
        """The name of the metric, reading or ratio that it limits."""
        return self.expression.name

    def is_kept_by(self, value: float) -> bool:
        """Whether ``value`` lies within the limit."""
        return _COMPARISONS[self.comparison](value, self.value)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one limit. ``is_named``: the user set the limit; it is not a default.

    ``device`` and ``of`` are those of the metric.
    """

    limit: str
    metric: str
    value: float | None
    unit: str
    verdict: Outcome
    reason: str | None
    advice: str
    is_named: bool
    bound: str = ""
    of: str | None = None
    device: str | None = None

    @property
    def line(self) -> str:
        """The limit and the measured value, on one line."""
        return f"{self.limit}: {self.actual}"

    @property
    def sentence(self) -> str:
        """The value and its limit: "memory.peak_bytes = 3.00 GiB, limit <= 2 GiB"."""
        equals = " = " if self.value is not None else ": "
        return f"{self.metric}{equals}{self.actual}, {self.bound}"

    def advise(self, path: str) -> str:
        """The advice, with the path of the recording in its commands."""
        return self.advice.replace(RECORDING, clean(shlex.quote(path), 400))

    @property
    def brief(self) -> str:
        """Like ``actual``, with a shorter name of the device."""
        return replace(self, of=self.device).actual

    @property
    def actual(self) -> str:
        """The value with its unit and device. Without a value: the outcome and the reason."""
        if self.value is None:
            return f"{self.verdict} ({self.reason})"
        return value_words(self.value, self.unit, self.of)


def parse_limit(text: str, *, is_of_change: bool = False) -> Limit:
    """Parse one limit. ``is_of_change``: it limits a change, so a size may be negative.

    Raises MemscopeError.
    """
    written = " ".join(text.split())
    match = _LIMIT.fullmatch(written)
    if match is None or not match[1].strip():
        raise MemscopeError(
            f"{text!r} is not a limit.", "Write METRIC OP VALUE, like 'driver.calls_per_step == 0'."
        )
    expression = parse_expression(match[1].strip())
    if match[2] is None:
        return _bare(expression)
    value, unit = parse_value(match[3].strip(), expression.name, expression.unit)
    if value < 0 and unit == "bytes" and not is_of_change:
        raise MemscopeError(
            f"{expression.name} is a size, and a size is never negative.",
            f"Write it like '{expression.name} <= {example_value(unit)}'.",
        )
    bound = f"limit {match[2]} {match[3].strip()}"
    return Limit(expression, match[2], value, unit, written, bound)


def parse_limits(texts: Iterable[str], source: str = "") -> tuple[Limit, ...]:
    """Parse several limits. Raises MemscopeError, which names their ``source``."""
    return tuple(_parse_from(text, source) for text in texts)


def override(nearer: Sequence[Limit], farther: Sequence[Limit]) -> tuple[Limit, ...]:
    """``nearer``, and the limits in ``farther`` on metrics that ``nearer`` does not limit."""
    named = {limit.metric for limit in nearer}
    return (*nearer, *(limit for limit in farther if limit.metric not in named))


@lru_cache(maxsize=256)
def default_limits(definition: MetricDefinition, name: str = "") -> tuple[Limit, ...]:
    """The default limits of a metric, on the metric itself or on one part of it (``name``)."""
    name = name or definition.name
    return tuple(_default(name, default) for default in definition.limits)


def judge(metrics: Mapping[str, Metric], limits: Sequence[Limit] = ()) -> tuple[Verdict, ...]:
    """Verdicts on ``limits``, then on default limits of metrics that no limit of the user names."""
    verdicts = [
        _judge_one(metrics, each, is_named=True) for limit in limits for each in _expand(limit)
    ]
    named = {limit.metric for limit in limits if not limit.is_default}
    for definition in METRICS:
        if definition.name not in named:
            verdicts += [
                _judge_one(metrics, limit, is_named=False) for limit in default_limits(definition)
            ]
    return tuple(verdicts)


def exit_code(verdicts: Sequence[Verdict], state: State) -> int:
    """1 if a deciding limit is broken or a named one not measured, else 3 if partial, else 0."""
    return run_exit_code([(verdicts, state)])


def run_exit_code(processes: Sequence[tuple[Sequence[Verdict], State]]) -> int:
    """The exit code for all processes of a run. It is enough if one process measured a metric."""
    measured = measured_limits([verdicts for verdicts, _ in processes])
    if any(breaking(verdicts, measured) for verdicts, _ in processes):
        return 1
    return 3 if any(state.is_partial for _, state in processes) else 0


def breaking(verdicts: Sequence[Verdict], measured: Collection[str] = ()) -> tuple[Verdict, ...]:
    """Verdicts that make the exit code 1: broken limits, and named limits without a value.

    If any limit is named, default limits do not count. ``measured``: limits that another process
    of the run has a value for.
    """
    named = [verdict for verdict in verdicts if verdict.is_named]
    return tuple(
        verdict
        for verdict in named or verdicts
        if verdict.verdict == Outcome.FAIL or _is_unmeasured(verdict, measured)
    )


def _is_unmeasured(verdict: Verdict, measured: Collection[str]) -> bool:
    is_missing = verdict.verdict == Outcome.NOT_MEASURED and verdict.is_named
    return is_missing and verdict.limit not in measured


def measured_limits(processes: Iterable[Sequence[Verdict]]) -> frozenset[str]:
    """Limits for which at least one process has a value."""
    return frozenset(
        verdict.limit for verdicts in processes for verdict in verdicts if verdict.value is not None
    )


def _bare(expression: MetricExpression) -> Limit:
    definition = find_definition(expression.name) if expression.is_metric else None
    if definition is None or not definition.limits:
        raise MemscopeError(
            f"{expression.name} has no default limit.",
            f"Write one, like '{expression.name} <= {example_value(expression.unit)}'.",
        )
    return Limit(expression, text=expression.name)


def _parse_from(text: str, source: str) -> Limit:
    try:
        return parse_limit(text)
    except MemscopeError as error:
        if not source:
            raise
        raise MemscopeError(f"{source}: {error.problem}", error.next_step) from None


def _expand(limit: Limit) -> tuple[Limit, ...]:
    if limit.comparison:
        return (limit,)
    definition = find_definition(limit.metric)
    assert definition is not None, limit.metric
    return default_limits(definition, limit.metric)


def _default(name: str, default: DefaultLimit) -> Limit:
    limit = parse_limit(f"{name} {default.limit}")
    warn = None if default.warn is None else parse_limit(f"{name} {default.warn}")
    return replace(limit, bound=f"default {default.limit}", warn=warn, is_default=True)


def _judge_one(metrics: Mapping[str, Metric], limit: Limit, *, is_named: bool) -> Verdict:
    metric = metrics.get(limit.metric) or Metric(
        limit.metric, None, limit.unit, "this recording does not have it"
    )
    is_a_step = per_second(metric.unit) != metric.unit
    if is_per_second(limit.unit) and is_a_step and metric.value is not None:
        metric = Metric(metric.name, None, metric.unit, _A_SECOND_OF_STEPS)
    verdict, reason = _compare(metric, limit)
    advice = _advice(limit.expression) if verdict in (Outcome.WARN, Outcome.FAIL) else ""
    return Verdict(
        limit.text,
        limit.metric,
        metric.value,
        metric.unit,
        verdict,
        reason,
        advice,
        is_named,
        limit.bound,
        metric.device_words,
        metric.device,
    )


def _advice(expression: MetricExpression) -> str:
    """The advice in the table of metrics. For readings and ratios: where to look."""
    definition = find_definition(expression.name) if expression.is_metric else None
    if definition is not None:
        return definition.advice
    terms = [term for term in (expression.over, expression.under) if term is not None]
    is_growth = any(term.statistic == "growth" for term in terms)
    return _SEE_GROWTH if is_growth else _SEE_PEAK


def _compare(metric: Metric, limit: Limit) -> tuple[Outcome, str | None]:
    if metric.value is None:
        return (
            Outcome.NOT_MEASURED if metric.is_applicable else Outcome.NOT_APPLICABLE
        ), metric.reason
    if metric.is_negligible and limit.is_default:
        return Outcome.PASS, metric.reason
    if not limit.is_kept_by(metric.value):
        return Outcome.FAIL, None
    if limit.warn is not None and not limit.warn.is_kept_by(metric.value):
        return Outcome.WARN, f"close to the limit: not {limit.warn.comparison} {limit.warn.value:g}"
    return Outcome.PASS, None
