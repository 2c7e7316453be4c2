"""The left side of a limit: a metric, a statistic of a reading, or a ratio of two of these.

Examples: ``driver.calls_per_step``, ``torch.reserved_bytes.peak``,
``torch.reserved_bytes[cuda:1].peak`` for one device, and ``A / B``.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from memscope.analysis.limits.value_parsing import a_step
from memscope.analysis.metrics.table import METRICS, find_definition
from memscope.analysis.timeline.reading_names import AREAS, BY_NAME, READINGS, STATISTICS
from memscope.errors import MemscopeError
from memscope.readings import unit_of

_TERM = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*)(?:\[([^\]]*)\](?:\.(\w+))?)?")
_SLASH = re.compile(r"/(?![^\[]*\])")  # not within [ ]
_DEVICE = re.compile(r"(?:cuda:)?(\d{1,4})|host")
_RESERVED = AREAS | {row.area for row in METRICS}


@dataclass(frozen=True, slots=True)
class Term:
    """A metric, or a ``statistic`` of a reading. ``unit`` is None if the name does not tell it.

    ``device``: the device of the reading, −1 for the host. None means all devices: the highest
    value counts, or the lowest for "min".
    """

    name: str
    unit: str | None
    reading_name: str = ""
    statistic: str = ""
    device: int | None = None


@dataclass(frozen=True, slots=True)
class MetricExpression:
    """``over`` alone, or the ratio ``over`` / ``under``."""

    over: Term
    under: Term | None = None

    @property
    def name(self) -> str:
        """The expression as the user writes it, with single spaces."""
        return self.over.name if self.under is None else f"{self.over.name} / {self.under.name}"

    @property
    def unit(self) -> str | None:
        """The unit; None if the name does not tell it."""
        return self.over.unit if self.under is None else "ratio"

    @property
    def is_metric(self) -> bool:
        """Whether it is one metric of the table."""
        return self.under is None and not self.over.reading_name


def parse_expression(text: str) -> MetricExpression:
    """Parse the left side of a limit. Raises MemscopeError if it names nothing known."""
    parts = [_parse_term(part.strip()) for part in _SLASH.split(text)]
    if len(parts) == 1:
        return MetricExpression(parts[0])
    if len(parts) > 2:
        raise MemscopeError(f"{text!r} has more than one /.", "Write a ratio of two: A / B.")
    over, under = parts
    if None not in (over.unit, under.unit) and over.unit != under.unit:
        raise MemscopeError(
            f"{over.name} is in {over.unit or 'counts'} and {under.name} in "
            f"{under.unit or 'counts'}.",
            "Divide two values of the same unit.",
        )
    return MetricExpression(over, under)


def _parse_term(text: str) -> Term:
    match = _TERM.fullmatch(text)
    if match is None:
        raise MemscopeError(
            f"{text!r} is not a limit." if text else "A metric is missing in this limit.",
            "Write METRIC OP VALUE, like 'driver.calls_per_step == 0'.",
        )
    name, part, statistic = match.groups()
    definition = find_definition(name)
    if definition is not None:
        if statistic:
            raise _no_statistic(name)
        return Term(text, definition.unit)
    if part is None:
        name, _, statistic = name.rpartition(".")
    return _parse_statistic(text, name, statistic or "", part)


def _parse_statistic(text: str, reading_name: str, statistic: str, part: str | None) -> Term:
    whole = text.partition("[")[0]
    if statistic not in STATISTICS or not reading_name:
        if whole in BY_NAME:
            raise MemscopeError(
                f"{text} is a reading and has many values.",
                f"Choose a statistic: {text}.peak, or {', '.join(STATISTICS[1:])}.",
            )
        raise MemscopeError(f"There is no metric {text!r}.", _near(whole))
    if find_definition(reading_name) is not None and reading_name not in BY_NAME:
        raise _no_statistic(reading_name)
    if reading_name not in BY_NAME and reading_name.partition(".")[0] in _RESERVED:
        raise MemscopeError(
            f"There is no reading {reading_name!r}.", _near_reading(reading_name, statistic)
        )
    unit = unit_of(reading_name) if reading_name not in BY_NAME else BY_NAME[reading_name].unit
    if statistic == "growth" and unit is not None:
        unit = a_step(unit)
    return Term(text, unit, reading_name, statistic, _parse_device(text, part))


def _parse_device(text: str, part: str | None) -> int | None:
    if part is None:
        return None
    match = _DEVICE.fullmatch(part)
    if match is None:
        raise MemscopeError(f"{part!r} in {text} is not a device.", "Write [cuda:0], or [host].")
    return -1 if match[1] is None else int(match[1])


def _no_statistic(name: str) -> MemscopeError:
    return MemscopeError(f"{name} is a metric and has only one value.", f"Write {name} alone.")


def _near(name: str) -> str:
    """A hint with similar names."""
    metrics = [row.name for row in METRICS]
    names = metrics + [f"{reading_name.name}.peak" for reading_name in READINGS]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    last = name.rpartition(".")[2]
    close += [each for each in metrics if each.endswith(f".{last}") and each not in close]
    return _suggest(close)


def _near_reading(reading_name: str, statistic: str) -> str:
    close = difflib.get_close_matches(reading_name, BY_NAME, n=3, cutoff=0.5)
    return _suggest([f"{name}.{statistic}" for name in close])


def _suggest(names: list[str]) -> str:
    shown = "`memscope check --list` shows all."
    return f"Did you mean {' or '.join(names)}? {shown}" if names else shown
