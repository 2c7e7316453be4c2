"""Limits on figures, and the verdicts: made here and nowhere else.

A limit is written FIGURE OP VALUE; a bare FIGURE takes its default.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from memscope.analysis.figure import Figure
from memscope.analysis.figures import FIGURES, DefaultLimit, FigureDefinition, find_definition
from memscope.errors import MemscopeError
from memscope.storage import State
from memscope.units import BYTE_UNITS, TIME_UNITS_S, format_value, split_quantity

PASS, WARN, FAIL = "pass", "warn", "fail"
NOT_MEASURED, NOT_APPLICABLE = "not measured", "not applicable"

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}
_LIMIT = re.compile(r"\s*([A-Za-z_.]+(?:\[[^\]]*\])?)\s*(?:(<=|>=|==|!=|<|>)\s*(.*?))?\s*", re.S)


@dataclass(frozen=True, slots=True)
class Limit:
    """``value`` is in the figure's unit. Without a ``comparison`` the figure's defaults are meant.

    ``warn`` is a tighter limit that only warns. ``is_default``: nobody wrote the value.
    """

    figure: str
    comparison: str = ""
    value: float = 0.0
    text: str = ""
    warn: Limit | None = None
    is_default: bool = False

    def is_kept_by(self, value: float) -> bool:
        """Whether ``value`` lies within the limit."""
        return _COMPARISONS[self.comparison](value, self.value)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one limit. ``is_named``: somebody asked for it, it is no default."""

    limit: str
    figure: str
    value: float | None
    unit: str
    verdict: str
    reason: str | None
    advice: str
    is_named: bool

    @property
    def line(self) -> str:
        """Limit and actual, on one line."""
        return f"{self.limit}: {self.actual}"

    @property
    def actual(self) -> str:
        """The value with its unit; without one, what is wrong and why."""
        if self.value is None:
            return f"{self.verdict} ({self.reason})"
        return format_value(self.value, self.unit)


def parse_limit(text: str) -> Limit:
    """The limit that ``text`` writes. Raises MemscopeError."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise MemscopeError(
            f"{text!r} is no limit.", "Write FIGURE OP VALUE, like 'driver.calls_per_step == 0'."
        )
    name, comparison, value = match.groups()
    definition = find_definition(name)
    if definition is None:
        raise MemscopeError(f"There is no figure {name!r}.", _near(name))
    if comparison is None:
        if not definition.limits:
            raise MemscopeError(
                f"{name} has no default limit.",
                f"Write one, like '{name} <= {_example(definition)}'.",
            )
        return Limit(name, text=name)
    return Limit(name, comparison, _parse_value(value, definition), " ".join(text.split()))


def default_limits(definition: FigureDefinition, name: str = "") -> tuple[Limit, ...]:
    """The defaults of a figure, under its own name or that of one of its parts."""
    name = name or definition.name
    return tuple(_default(name, default) for default in definition.limits)


def judge(figures: Mapping[str, Figure], limits: Sequence[Limit] = ()) -> tuple[Verdict, ...]:
    """Verdicts on ``limits``, then on the defaults of all figures that they do not name."""
    verdicts = [
        _judge_one(figures, each, is_named=True) for limit in limits for each in _expand(limit)
    ]
    named = {limit.figure for limit in limits}
    for definition in FIGURES:
        if definition.name not in named:
            verdicts += [
                _judge_one(figures, limit, is_named=False) for limit in default_limits(definition)
            ]
    return tuple(verdicts)


def exit_code(verdicts: Sequence[Verdict], state: State) -> int:
    """1 where a limit that counts is broken or a named one was not measured, else 3 if partial.

    Where any limit is named, only named ones count.
    """
    named = [verdict for verdict in verdicts if verdict.is_named]
    counting = named or verdicts
    is_broken = any(verdict.verdict == FAIL for verdict in counting)
    if is_broken or any(verdict.verdict == NOT_MEASURED for verdict in named):
        return 1
    return 3 if state.is_partial else 0


def _expand(limit: Limit) -> tuple[Limit, ...]:
    definition = find_definition(limit.figure)
    assert definition is not None, limit.figure
    return (limit,) if limit.comparison else default_limits(definition, limit.figure)


def _default(name: str, default: DefaultLimit) -> Limit:
    limit = parse_limit(f"{name} {default.limit}")
    warn = None if default.warn is None else parse_limit(f"{name} {default.warn}")
    return replace(limit, warn=warn, is_default=True)


def _judge_one(figures: Mapping[str, Figure], limit: Limit, *, is_named: bool) -> Verdict:
    definition = find_definition(limit.figure)
    assert definition is not None, limit.figure
    figure = figures.get(limit.figure) or Figure(
        limit.figure, None, definition.unit, "this recording has no such part"
    )
    verdict, reason = _compare(figure, limit)
    advice = definition.advice if verdict in (WARN, FAIL) else ""
    return Verdict(
        limit.text, limit.figure, figure.value, figure.unit, verdict, reason, advice, is_named
    )


def _compare(figure: Figure, limit: Limit) -> tuple[str, str | None]:
    if figure.value is None:
        return (NOT_MEASURED if figure.is_applicable else NOT_APPLICABLE), figure.reason
    if figure.is_negligible and limit.is_default:
        return PASS, figure.reason
    if not limit.is_kept_by(figure.value):
        return FAIL, None
    if limit.warn is not None and not limit.warn.is_kept_by(figure.value):
        return WARN, f"close to the limit: not {limit.warn.comparison} {limit.warn.value:g}"
    return PASS, None


def _parse_value(text: str, definition: FigureDefinition) -> float:
    """``text`` in the figure's unit."""
    try:
        number, unit = split_quantity(text)
    except MemscopeError:
        number, unit = 0.0, text or "nothing"
    factors = _factors(definition.unit)
    if unit.upper() not in factors:
        raise MemscopeError(
            f"{definition.name} is measured in {definition.unit}, not in {unit!r}.",
            f"Write it like '{definition.name} <= {_example(definition)}'.",
        )
    value = number * factors[unit.upper()]
    if math.isinf(value):
        raise MemscopeError(f"{text!r} is no number that can be compared.", "Write a finite one.")
    return value


def _factors(unit: str) -> dict[str, float]:
    """What a unit that may be written is worth in ``unit``; upper case."""
    plain = {"": 1.0}
    if unit.startswith("bytes"):
        return plain | BYTE_UNITS
    if unit in ("ms", "s"):
        return plain | {
            name: value / TIME_UNITS_S[unit.upper()] for name, value in TIME_UNITS_S.items()
        }
    return plain | ({"%": 0.01} if unit == "ratio" else {unit.upper(): 1.0})


def _example(definition: FigureDefinition) -> str:
    unit = definition.unit
    return {"ratio": "0.95", "ms": "40 ms", "s": "60 s"}.get(
        unit, "2 GiB" if unit.startswith("bytes") else "4"
    )


def _near(name: str) -> str:
    """Names that may have been meant."""
    names = [row.name for row in FIGURES]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    last = name.rpartition(".")[2]
    close += [each for each in names if each.endswith(f".{last}") and each not in close]
    if close:
        return f"Did you mean {' or '.join(close)}? `memscope check --list` shows all."
    return "`memscope check --list` shows all."
