"""A baseline: what metrics came to before, in a file that people review, as limits.

Sections of one file are a test's id each; ``memscope check`` uses "recording".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memscope.analysis.limits.baseline_file import MACHINE, read_machine, write_file
from memscope.analysis.limits.expected import BETTER, Expected, find_better
from memscope.analysis.limits.limits import Limit
from memscope.analysis.limits.machine_class import MachineClass
from memscope.analysis.limits.written_value import parse_value
from memscope.analysis.metrics.expression import parse_expression
from memscope.analysis.metrics.metric import Metric
from memscope.analysis.metrics.table import find_definition
from memscope.configuration import parse_tolerance, read_toml
from memscope.errors import MemscopeError
from memscope.text import clean

DEFAULT_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class BaselineLimits:
    """Limits of one section, and what a reader of the verdicts must know of them."""

    limits: tuple[Limit, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the file ``path`` holds: the class of the machine, and metrics by section and name."""

    path: Path
    machine: MachineClass
    sections: Mapping[str, Mapping[str, Expected]]

    def limits(
        self, section: str, machine: MachineClass, tolerance: float = DEFAULT_TOLERANCE
    ) -> BaselineLimits:
        """What a section comes to on ``machine``; elsewhere only what holds on any machine."""
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
            f"{self.path} is of another machine class ({'; '.join(differences)}): "
            f"not judged by it: {', '.join(left_out)}"
        )
        return BaselineLimits(tuple(limits), (warning,))

    def holds_memory(self, section: str) -> bool:
        """Whether a size stands in ``section``."""
        return any(each.is_of_memory for each in self.sections.get(section, {}).values())


@dataclass(frozen=True, slots=True)
class Lost:
    """A metric that a section held before it was written anew, and why it does so no more."""

    section: str
    metric: str
    reason: str

    def words(self, *, with_section: bool) -> str:
        """Its name and the reason."""
        place = f"{self.section}: " if with_section else ""
        return clean(f"{place}{self.metric} ({self.reason})")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What a new baseline replaced: how many ``sections`` were there before, and what is lost."""

    sections: int
    lost: tuple[Lost, ...]


def read_baseline(path: Path) -> Baseline:
    """The baseline in a file. Raises MemscopeError."""
    data = read_toml(path)
    machine = read_machine(data.pop(MACHINE, None), path)
    return Baseline(path, machine, {name: _read_section(name, data[name], path) for name in data})


def write_baseline(
    path: Path,
    sections: Mapping[str, Mapping[str, Metric]],
    machine: MachineClass,
    limits: Sequence[Limit] = (),
) -> Rewrite:
    """Put ``sections`` into the file, in the place of those of the same name, by rename.

    Written is what is measured, has a direction and comes out alike in the next run, and the
    readings and ratios that ``limits`` hold to one side. Tolerances that the file has are kept.
    Raises MemscopeError; where the file is of another machine class, other sections would then be
    of the wrong one, and where it is no baseline; then it stays.
    """
    before = _read_before(path, sections, machine)
    written = {
        name: _expect(measured, before.get(name, {}), limits) for name, measured in sections.items()
    }
    if not any(written.values()):
        raise MemscopeError(
            "Nothing was measured that a baseline can hold.",
            "`memscope check --list` says what it can; set limits on readings instead.",
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
        Lost(section, name, _why_lost(measured.get(name)))
        for section, measured in sections.items()
        for name in before.get(section, {})
        if name not in written[section]
    )
    return Rewrite(len(before.keys() & sections.keys()), tuple(lost))


def _read_before(
    path: Path, sections: Collection[str], machine: MachineClass
) -> Mapping[str, Mapping[str, Expected]]:
    """What the file has, by section; it may stay beside ``sections``. Raises MemscopeError."""
    if not path.exists():
        return {}
    old = _read_old(path)
    others = old.sections.keys() - set(sections)
    if others and (differences := machine.differences(old.machine)):
        raise MemscopeError(
            f"{path} is of another machine class ({'; '.join(differences)}).",
            "Write all of its sections, or another file.",
        )
    return old.sections


def _read_old(path: Path) -> Baseline:
    try:
        return read_baseline(path)
    except MemscopeError as error:
        raise MemscopeError(
            f"No baseline is written over what is none: {error.problem}",
            "Name another file, or remove this one first.",
        ) from None


def _expect(
    measured: Mapping[str, Metric], old: Mapping[str, Expected], limits: Sequence[Limit]
) -> dict[str, Expected]:
    return {
        name: Expected(
            name, metric.value, metric.unit, better, old[name].tolerance if name in old else None
        )
        for name, metric in measured.items()
        if metric.value is not None and (better := find_better(name, limits))
    }


def _why_lost(metric: Metric | None) -> str:
    if metric is None:
        return "no limit names it"
    return "not measured" if metric.value is None else "no limit says which way is better"


def _read_section(section: str, data: Any, path: Path) -> dict[str, Expected]:
    if not isinstance(data, dict):
        raise MemscopeError(f"{path}: {section} is no section of metrics.", _REWRITE)
    return {name: _read_expected(name, data[name], path) for name in data}


def _read_expected(name: str, written: object, path: Path) -> Expected:
    """``"1024 bytes"``, or a table: such a ``value``, a ``tolerance``, maybe ``better``."""
    fields = written if isinstance(written, dict) else {"value": written}
    unit, better = _read_kind(name, fields.get("better"), path)
    value = fields.get("value")
    if not isinstance(value, str) or fields.keys() - {"value", "tolerance", "better"}:
        raise MemscopeError(
            f"{path}: {name} is no value.",
            'Write "1024 bytes", or { value = "1024 bytes", tolerance = "10 %" }.',
        )
    try:
        tolerance = parse_tolerance(fields["tolerance"]) if "tolerance" in fields else None
        return Expected(name, *parse_value(value, name, unit), better, tolerance)
    except MemscopeError as error:
        raise MemscopeError(f"{path}: {name}: {error.problem}", error.next_step) from None


def _read_kind(name: str, better: object, path: Path) -> tuple[str | None, str]:
    """The unit of what ``name`` is, None where the name tells none; and which way is better."""
    row = find_definition(name)
    if row is not None and row.direction and better in (None, row.direction):
        return row.unit, row.direction
    if row is None and better in BETTER:
        try:
            expression = parse_expression(name)
        except MemscopeError as error:
            raise MemscopeError(f"{path}: {error.problem}", error.next_step) from None
        return expression.unit, str(better)
    raise MemscopeError(f"{path}: {name!r} is no metric that a baseline holds.", _REWRITE)


_REWRITE = "Write it anew with --write-baseline."
