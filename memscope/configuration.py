"""Configuration files: ``[tool.memscope]`` in pyproject.toml, and files of limits."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memscope.errors import MemscopeError

SECTION = "[tool.memscope]"
MAX_TOML_BYTES = 1 << 24  # /dev/zero would never end


@dataclass(frozen=True, slots=True)
class Configuration:
    """``[tool.memscope]`` in the file ``path``; None if there is no such file.

    ``limits``: as written. ``baseline``: a path relative to the pyproject.toml. ``tolerance``: a
    share, 0.05 for 5 %. ``strict``, ``repeat`` and ``warmup`` are for the pytest plugin.
    """

    path: Path | None = None
    limits: tuple[str, ...] = ()
    baseline: Path | None = None
    tolerance: float | None = None
    strict: bool = False
    repeat: int = 1
    warmup: int = 0


def read_configuration(folder: Path) -> Configuration:
    """Read the nearest pyproject.toml with such a section, from ``folder`` upward.

    Raises MemscopeError if a key is unknown or its value is invalid.
    """
    for path in (each / "pyproject.toml" for each in (folder, *folder.parents)):
        if path.is_file() and (section := _section(path)) is not None:
            return Configuration(path, **_read_keys(section, _KEYS, path, f" of {SECTION}"))
    return Configuration()


def read_limits_file(path: Path) -> tuple[str, ...]:
    """The limits in a TOML file with ``limits = [...]``. Raises MemscopeError."""
    values = _read_keys(read_toml(path), {"limits": _KEYS["limits"]}, path)
    if "limits" not in values:
        raise MemscopeError(f"{path} has no limits.", 'Write limits = ["oom.engine_count == 0"].')
    limits: tuple[str, ...] = values["limits"]
    return limits


def parse_tolerance(written: object) -> float:
    """The share in ``"5 %"``, ``"0.05"`` or 0.05. Raises MemscopeError."""
    text = str(written).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if isinstance(written, bool) or not 0 <= share < math.inf:
        raise MemscopeError(f"{text!r} is not a tolerance.", 'Write it like "5 %".')
    return share


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises MemscopeError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TOML_BYTES + 1)
        if len(data) > MAX_TOML_BYTES:
            raise MemscopeError(f"{path} is too large for a file of limits.", "Name another file.")
        return tomllib.loads(data.decode())
    except FileNotFoundError:
        raise MemscopeError(f"{path} does not exist.", "Check the path.") from None
    except OSError as error:
        raise MemscopeError(
            f"{path} cannot be read ({error.strerror}).", "Check the file."
        ) from None
    except (ValueError, RecursionError) as error:
        raise MemscopeError(f"{path} cannot be read ({error}).", "Fix the file.") from None


def _section(path: Path) -> Mapping[str, Any] | None:
    tool = read_toml(path).get("tool", {})
    section = tool.get("memscope") if isinstance(tool, dict) else None
    if section is not None and not isinstance(section, dict):
        raise MemscopeError(f"{path}: tool.memscope is not a table.", f"Write {SECTION}.")
    return section


def _read_keys(
    section: Mapping[str, Any], keys: Mapping[str, _Reader], path: Path, where: str = ""
) -> dict[str, Any]:
    for key in section:
        if key not in keys:
            close = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
            hint = f"Did you mean {close[0]}?" if close else f"The keys are {', '.join(keys)}."
            raise MemscopeError(f"{path}: {key!r} is not a key{where}.", hint)
    return {key: keys[key](value, key, path) for key, value in section.items()}


def _read_limits(value: object, key: str, path: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise MemscopeError(
            f"{path}: {key} is not a list of strings.",
            'Write limits = ["driver.calls_per_step == 0"].',
        )
    return tuple(value)


def _read_path(value: object, key: str, path: Path) -> Path:
    if not isinstance(value, str) or not value:
        raise MemscopeError(f"{path}: {key} is not a file name.", f'Write {key} = "memscope.toml".')
    return path.parent / value


def _read_tolerance(value: object, key: str, path: Path) -> float:
    try:
        return parse_tolerance(value)
    except MemscopeError as error:
        raise MemscopeError(f"{path}: {key}: {error.problem}", error.next_step) from None


def _read_flag(value: object, key: str, path: Path) -> bool:
    if not isinstance(value, bool):
        raise MemscopeError(f"{path}: {key} is neither true nor false.", f"Write {key} = true.")
    return value


def _count_from(least: int) -> _Reader:
    def read(value: object, key: str, path: Path) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 10_000:
            raise MemscopeError(
                f"{path}: {key} is not a whole number from {least} to 10000.", f"Write {key} = 3."
            )
        return value

    return read


_Reader = Callable[[object, str, Path], Any]
_KEYS: dict[str, _Reader] = {
    "limits": _read_limits,
    "baseline": _read_path,
    "tolerance": _read_tolerance,
    "strict": _read_flag,
    "repeat": _count_from(1),
    "warmup": _count_from(0),
}
