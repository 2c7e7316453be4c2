"""The file of a baseline: sorted TOML, one metric per line, with units."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from memscope.analysis.limits.baseline_value import BaselineValue
from memscope.analysis.limits.machine_class import MachineClass
from memscope.analysis.limits.value_parsing import write_value
from memscope.atomic_file import atomic_write
from memscope.errors import MemscopeError
from memscope.units import format_bytes

MACHINE = "memscope"
_HEAD = """\
# Earlier values of metrics, for `memscope check --baseline` and pytest. Written by memscope. It
# keeps tolerances, {{ value = "...", tolerance = "10 %" }}, but no comments of yours.

[{section}]
version = {version}
device = {device}
kind = {kind}
{total}torch = {torch}
"""


def write_file(
    path: Path, machine: MachineClass, sections: Mapping[str, Sequence[BaselineValue]]
) -> None:
    """Write the file in one step. Raises MemscopeError."""
    with atomic_write(path, force=True) as unfinished:
        unfinished.write_text(baseline_text(machine, sections), encoding="utf-8")


def baseline_text(machine: MachineClass, sections: Mapping[str, Sequence[BaselineValue]]) -> str:
    """The whole text of the file."""
    size = machine.total_bytes
    total = "" if size is None else f'total = "{size} bytes"{_comment(size, "bytes")}\n'
    head = _HEAD.format(
        section=MACHINE,
        version=_quote(_version()),
        device=_quote(machine.device),
        kind=_quote(machine.kind),
        total=total,
        torch=_quote(machine.torch),
    )
    blocks = [
        "\n".join([f"[{_quote(section)}]", *map(_line, lines)]) + "\n"
        for section, lines in sections.items()
    ]
    return "\n".join([head, *blocks])


def read_machine(data: Any, path: Path) -> MachineClass:
    """The class of machine that the file names. Raises MemscopeError."""
    fields = data if isinstance(data, dict) else {}
    texts = [fields.get(key) for key in ("device", "kind", "torch")]
    total = str(fields.get("total", "")).removesuffix(" bytes")
    if not all(isinstance(text, str) for text in texts) or not (total.isdecimal() or not total):
        raise MemscopeError(
            f"{path} is not a baseline: section [{MACHINE}] does not name a machine.",
            "Write one with --write-baseline.",
        )
    device, kind, torch = map(str, texts)
    return MachineClass(device, kind, int(total) if total else None, torch)


def _line(expected: BaselineValue) -> str:
    written = _quote(write_value(expected.value, expected.unit))
    fields = {"value": written}
    if expected.tolerance is not None:
        fields["tolerance"] = _quote(write_value(round(expected.tolerance * 100, 10), "%"))
    if expected.is_reading:
        fields["better"] = _quote(expected.better)
    if len(fields) > 1:
        written = f"{{ {', '.join(f'{key} = {text}' for key, text in fields.items())} }}"
    return f"{_quote(expected.metric)} = {written}{_comment(expected.value, expected.unit)}"


def _comment(value: float, unit: str) -> str:
    """A comment with a large size as people read it."""
    return f"  # {format_bytes(value)}" if unit == "bytes" and abs(value) >= 1024 else ""


def _quote(text: str) -> str:
    """A TOML string. JSON's escapes are valid in TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _version() -> str:
    try:
        return version("memscope-torch")
    except PackageNotFoundError:
        return "unknown"
