"""A baseline: earlier values of metrics in a file. They are limits for later runs.

In a file of pytest, each section is the id of a test. ``memscope check`` uses "recording".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memscope.analysis.limits.baseline_file import MACHINE, read_machine, write_file
from memscope.analysis.limits.baseline_value import BETTER, BaselineValue, find_better
from memscope.analysis.limits.limits import Limit
from memscope.analysis.limits.machine_class import MachineClass
from memscope.analysis.limits.value_parsing import parse_value
from memscope.analysis.metrics.expression import parse_expression
from memscope.analysis.metrics.metric import Metric
from memscope.analysis.metrics.table import find_definition
from memscope.configuration import parse_tolerance, read_toml
from memscope.errors import MemscopeError
from memscope.text import clean

DEFAULT_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class BaselineLimits:
    """The limits of one section, and warnings to show with the verdicts."""

    limits: tuple[Limit, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Baseline:
    """The content of the file ``path``: the class of machine, and values by section and name."""

    path: Path
    machine: MachineClass
    sections: Mapping[str, Mapping[str, BaselineValue]]

    def limits(
        self, section: str, machine: MachineClass, tolerance: float = DEFAULT_TOLERANCE
    ) -> BaselineLimits:
        """The limits of a section. On another class of machine: only those that hold anywhere."""
        expected = self.sections.get(section)
        if expected is None:
            return BaselineLimits((), (f"{self.path} has no section {section!r}",))
        differences = machine.differences(self.machine)
        is_elsewhere = bool(differences)
        kept = [each for each in expected.values() if each.repeats(is_elsewhere=is_elsewhere)]
        limits = [each.limit(tolerance) for each in kept]
        left_out = [name for name, each in expected.items() if each not in kept]
        if not differences or not left_out:
            return BaselineLimits(tuple(limits))
        warning = (
            f"{self.path} is for another class of machine ({'; '.join(differences)}): "
            f"not compared: {', '.join(left_out)}"
        )
        return BaselineLimits(tuple(limits), (warning,))

    def holds_memory(self, section: str) -> bool:
        """Whether ``section`` has a limit on memory."""
        return any(each.is_of_memory for each in self.sections.get(section, {}).values())


@dataclass(frozen=True, slots=True)
class RemovedMetric:
    """A metric that is no longer in a section after writing, and why."""

    section: str
    metric: str
    reason: str

    def words(self, *, with_section: bool) -> str:
        """Its name and the reason, as text."""
        place = f"{self.section}: " if with_section else ""
        return clean(f"{place}{self.metric} ({self.reason})")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What writing changed: the number of replaced ``sections``, and the metrics removed."""

    sections: int
    lost: tuple[RemovedMetric, ...]


def read_baseline(path: Path) -> Baseline:
    """Read a baseline. Raises MemscopeError."""
    data = read_toml(path)
    machine = read_machine(data.pop(MACHINE, None), path)
    return Baseline(path, machine, {name: _read_section(name, data[name], path) for name in data})


def write_baseline(
    path: Path,
    sections: Mapping[str, Mapping[str, Metric]],
    machine: MachineClass,
    limits: Sequence[Limit] = (),
) -> Rewrite:
    """Write ``sections`` to the file. Sections of the same name are replaced, others stay.

    A metric is written if it was measured, has a better direction, and repeats in the next run. A
    reading or ratio is written if ``limits`` bound it from one side. Tolerances in the file stay.

    Raises MemscopeError, and leaves the file unchanged, if it is not a baseline, or if it has other
    sections that are for another class of machine.
    """
    before = _read_before(path, sections, machine)
    written = {
        name: _expect(measured, before.get(name, {}), limits) for name, measured in sections.items()
    }
    if not any(written.values()):
        raise MemscopeError(
            "Nothing was measured that a baseline can hold.",
            "See `memscope check --list`, or set limits on readings.",
        )
    write_file(
        path,
        machine,
        {
            section: [each for _, each in sorted(expected.items())]
            for section, expected in sorted({**before, **written}.items())
            if expected
        },
    )
    lost = (
        RemovedMetric(section, name, _why_lost(measured.get(name)))
        for section, measured in sections.items()
        for name in before.get(section, {})
        if name not in written[section]
    )
    return Rewrite(len(before.keys() & sections.keys()), tuple(lost))


def _read_before(
    path: Path, sections: Collection[str], machine: MachineClass
) -> Mapping[str, Mapping[str, BaselineValue]]:
    """The sections in the file. Raises MemscopeError if they cannot stay beside ``sections``."""
    if not path.exists():
        return {}
    old = _read_old(path)
    others = old.sections.keys() - set(sections)
    if others and (differences := machine.differences(old.machine)):
        raise MemscopeError(
            f"{path} is for another class of machine ({'; '.join(differences)}).",
            "Write all of its sections, or name another file.",
        )
    return old.sections


def _read_old(path: Path) -> Baseline:
    try:
        return read_baseline(path)
    except MemscopeError as error:
        raise MemscopeError(
            f"The file is not a baseline and was not overwritten: {error.problem}",
            "Name another file, or delete this one first.",
        ) from None


def _expect(
    measured: Mapping[str, Metric], old: Mapping[str, BaselineValue], limits: Sequence[Limit]
) -> dict[str, BaselineValue]:
    return {
        name: BaselineValue(
            name, metric.value, metric.unit, better, old[name].tolerance if name in old else None
        )
        for name, metric in measured.items()
        if metric.value is not None and (better := find_better(name, limits))
    }


def _why_lost(metric: Metric | None) -> str:
    if metric is None:
        return "no limit names it"
    return "not measured" if metric.value is None else "no limit says which way is better"


def _read_section(section: str, data: Any, path: Path) -> dict[str, BaselineValue]:
    if not isinstance(data, dict):
        raise MemscopeError(f"{path}: {section} is not a section of metrics.", _REWRITE)
    return {name: _read_expected(name, data[name], path) for name in data}


def _read_expected(name: str, written: object, path: Path) -> BaselineValue:
    """Parse ``"1024 bytes"``, or a table with ``value``, ``tolerance`` and ``better``."""
    fields = written if isinstance(written, dict) else {"value": written}
    unit, better = _read_kind(name, fields.get("better"), path)
    value = fields.get("value")
    if not isinstance(value, str) or fields.keys() - {"value", "tolerance", "better"}:
        raise MemscopeError(
            f"{path}: {name} is not a value.",
            'Write "1024 bytes", or { value = "1024 bytes", tolerance = "10 %" }.',
        )
    try:
        tolerance = parse_tolerance(fields["tolerance"]) if "tolerance" in fields else None
        return BaselineValue(name, *parse_value(value, name, unit), better, tolerance)
    except MemscopeError as error:
        raise MemscopeError(f"{path}: {name}: {error.problem}", error.next_step) from None


def _read_kind(name: str, better: object, path: Path) -> tuple[str | None, str]:
    """The unit of ``name``, None if unknown, and which direction is better."""
    row = find_definition(name)
    if row is not None and row.direction and better in (None, row.direction):
        return row.unit, row.direction
    if row is None and better in BETTER:
        try:
            expression = parse_expression(name)
        except MemscopeError as error:
            raise MemscopeError(f"{path}: {error.problem}", error.next_step) from None
        return expression.unit, str(better)
    raise MemscopeError(f"{path}: a baseline cannot hold {name!r}.", _REWRITE)


_REWRITE = "Write it again with --write-baseline."
