"""A baseline: what figures came to before, in a file that people review, as limits.

Sections of one file are a test's id each; ``memscope check`` uses "recording".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memscope.analysis.baseline_file import MACHINE, read_machine, write_file
from memscope.analysis.figure import Figure
from memscope.analysis.figure_definition import IN_NO_OTHER_RUN, ON_ANY_MACHINE
from memscope.analysis.figures import FigureDefinition, find_definition
from memscope.analysis.limits import Limit
from memscope.analysis.machine_class import MachineClass
from memscope.analysis.quantity import Quantity, Term
from memscope.analysis.written_value import parse_value
from memscope.configuration import parse_tolerance, read_toml
from memscope.errors import MemscopeError
from memscope.units import format_value

DEFAULT_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Expected:
    """What a figure came to, in its unit; ``tolerance``: a share, None where the file has none."""

    figure: str
    value: float
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class BaselineLimits:
    """Limits of one section, and what a reader of the verdicts must know of them."""

    limits: tuple[Limit, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the file ``path`` holds: the class of the machine, and figures by section and name."""

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
        is_kept = {name: _repeats(name, is_elsewhere=bool(differences)) for name in expected}
        limits = [_limit(each, tolerance) for name, each in expected.items() if is_kept[name]]
        left_out = [name for name, kept in is_kept.items() if not kept]
        if not differences or not left_out:
            return BaselineLimits(tuple(limits))
        warning = (
            f"{self.path} is of another machine class ({'; '.join(differences)}): "
            f"not judged by it: {', '.join(left_out)}"
        )
        return BaselineLimits(tuple(limits), (warning,))


def read_baseline(path: Path) -> Baseline:
    """The baseline in a file. Raises MemscopeError."""
    data = read_toml(path)
    machine = read_machine(data.pop(MACHINE, None), path)
    return Baseline(path, machine, {name: _read_section(name, data[name], path) for name in data})


def write_baseline(
    path: Path, sections: Mapping[str, Mapping[str, Figure]], machine: MachineClass
) -> None:
    """Put ``sections`` into the file, in the place of those of the same name, by rename.

    Written is what is measured, has a direction and comes out alike in the next run. Tolerances
    that the file has are kept. Raises MemscopeError; where the file is of another machine class,
    other sections would then be of the wrong one, and where it is no baseline; then it stays.
    """
    old = _read_old(path) if path.exists() else None
    kept = dict(old.sections) if old else {}
    others = kept.keys() - sections.keys()
    if old is not None and others and (differences := machine.differences(old.machine)):
        raise MemscopeError(
            f"{path} is of another machine class ({'; '.join(differences)}).",
            "Write all of its sections, or another file.",
        )
    for name, measured in sections.items():
        kept[name] = _expect(measured, kept.get(name, {}))
    kept = {name: expected for name, expected in kept.items() if expected}
    if not kept.keys() & sections.keys():
        raise MemscopeError(
            "Nothing was measured that a baseline can hold.",
            "`memscope check --list` says what it can; set limits on metrics instead.",
        )
    write_file(
        path,
        machine,
        {
            section: [
                (name, each.value, _definition(name).unit, each.tolerance)
                for name, each in sorted(expected.items())
            ]
            for section, expected in sorted(kept.items())
        },
    )


def _read_old(path: Path) -> Baseline:
    try:
        return read_baseline(path)
    except MemscopeError as error:
        raise MemscopeError(
            f"No baseline is written over what is none: {error.problem}",
            "Name another file, or remove this one first.",
        ) from None


def _expect(measured: Mapping[str, Figure], old: Mapping[str, Expected]) -> dict[str, Expected]:
    return {
        name: Expected(name, figure.value, old[name].tolerance if name in old else None)
        for name, figure in measured.items()
        if figure.value is not None and _is_kept(name)
    }


def _is_kept(name: str) -> bool:
    row = find_definition(name)
    return row is not None and bool(row.direction) and row.repeats != IN_NO_OTHER_RUN


def _repeats(name: str, *, is_elsewhere: bool) -> bool:
    return not is_elsewhere or _definition(name).repeats == ON_ANY_MACHINE


def _limit(expected: Expected, tolerance: float) -> Limit:
    """No worse than expected by more than the tolerance, or what sampling alone may do."""
    row = _definition(expected.figure)
    share = tolerance if expected.tolerance is None else expected.tolerance
    room = max(abs(expected.value) * share, row.slack)
    is_lower = row.direction == "lower"
    comparison, sign = ("<=", "+") if is_lower else (">=", "−")
    allowed = format_value(expected.value, row.unit)
    if room:
        is_slack = room > abs(expected.value) * share
        by = format_value(room, row.unit) if is_slack else f"{share * 100:.3g} %"
        allowed = f"{allowed} {sign} {by}"
    return Limit(
        Quantity(Term(expected.figure, row.unit)),
        comparison,
        expected.value + room if is_lower else expected.value - room,
        row.unit,
        text=f"{expected.figure} {comparison} {allowed} (baseline)",
        bound=f"baseline {allowed}",
        is_default=True,
    )


def _definition(name: str) -> FigureDefinition:
    row = find_definition(name)
    assert row is not None, name
    return row


def _read_section(section: str, data: Any, path: Path) -> dict[str, Expected]:
    if not isinstance(data, dict):
        raise MemscopeError(f"{path}: {section} is no section of figures.", _REWRITE)
    return {name: _read_expected(name, data[name], path) for name in data}


def _read_expected(name: str, written: object, path: Path) -> Expected:
    """``"1024 bytes"``, or a table of such a ``value`` and a ``tolerance``."""
    row = find_definition(name)
    if row is None or not row.direction:
        raise MemscopeError(f"{path}: {name!r} is no figure that a baseline holds.", _REWRITE)
    fields = written if isinstance(written, dict) else {"value": written}
    value = fields.get("value")
    if not isinstance(value, str) or fields.keys() - {"value", "tolerance"}:
        raise MemscopeError(
            f"{path}: {name} is no value.",
            'Write "1024 bytes", or { value = "1024 bytes", tolerance = "10 %" }.',
        )
    try:
        tolerance = parse_tolerance(fields["tolerance"]) if "tolerance" in fields else None
        return Expected(name, parse_value(value, name, row.unit)[0], tolerance)
    except MemscopeError as error:
        raise MemscopeError(f"{path}: {name}: {error.problem}", error.next_step) from None


_REWRITE = "Write it anew with --write-baseline."
