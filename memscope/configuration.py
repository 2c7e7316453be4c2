"""What people configure in files: ``[tool.memscope]`` of a pyproject.toml, and files of limits."""

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
MAX_TOML_BYTES = 1 << 24  # a device has no end


@dataclass(frozen=True, slots=True)
class Configuration:
    """``[tool.memscope]`` of the file ``path``, which is None where there is none.

    ``limits``: as written. ``baseline``: a file, relative to the pyproject.toml. ``tolerance``: a
    share. ``strict``, ``repeat`` and ``warmup`` are the pytest plugin's.
    """

    path: Path | None = None
    limits: tuple[str, ...] = ()
    baseline: Path | None = None
    tolerance: float | None = None
    strict: bool = False
    repeat: int = 1
    warmup: int = 0


def read_configuration(folder: Path) -> Configuration:
    """The section of the nearest pyproject.toml that has one, from ``folder`` upward.

    Raises MemscopeError where a key is unknown or holds what it cannot.
    """
    for path in (each / "pyproject.toml" for each in (folder, *folder.parents)):
        if path.is_file() and (section := _section(path)) is not None:
            return Configuration(path, **_read_keys(section, _KEYS, path, f" of {SECTION}"))
    return Configuration()


def read_limits_file(path: Path) -> tuple[str, ...]:
    """The limits of a TOML file ``limits = [...]``. Raises MemscopeError."""
    found = _read_keys(read_toml(path), {"limits": _KEYS["limits"]}, path)
    if "limits" not in found:
        raise MemscopeError(f"{path} holds no limits.", 'Write limits = ["oom.engine_count == 0"].')
    limits: tuple[str, ...] = found["limits"]
    return limits


def parse_tolerance(written: object) -> float:
    """A share of ``"5 %"``, ``"0.05"`` or 0.05. Raises MemscopeError."""
    text = str(written).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if isinstance(written, bool) or not 0 <= share < math.inf:
        raise MemscopeError(f"{text!r} is no tolerance.", 'Write it like "5 %".')
    return share


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file holds. Raises MemscopeError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TOML_BYTES + 1)
        if len(data) > MAX_TOML_BYTES:
            raise MemscopeError(f"{path} is larger than any file of limits.", "Name another one.")
        return tomllib.loads(data.decode())
    except FileNotFoundError:
        raise MemscopeError(f"{path} does not exist.", "Name a file that does.") from None
    except OSError as error:
        raise MemscopeError(f"{path} cannot be read ({error.strerror}).", "Mend it.") from None
    except (ValueError, RecursionError) as error:
        raise MemscopeError(f"{path} cannot be read ({error}).", "Mend it.") from None


def _section(path: Path) -> Mapping[str, Any] | None:
    tool = read_toml(path).get("tool", {})
    section = tool.get("memscope") if isinstance(tool, dict) else None
    if section is not None and not isinstance(section, dict):
        raise MemscopeError(f"{path} has a memscope that is no table.", f"Write {SECTION}.")
    return section


def _read_keys(
    section: Mapping[str, Any], keys: Mapping[str, _Reader], path: Path, where: str = ""
) -> dict[str, Any]:
    for key in section:
        if key not in keys:
            close = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
            hint = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(keys)}."
            raise MemscopeError(f"{path}: there is no key {key!r}{where}.", hint)
    return {key: keys[key](value, key, path) for key, value in section.items()}


def _read_limits(value: object, key: str, path: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise MemscopeError(
            f"{path}: {key} is no list of texts.", 'Write limits = ["driver.calls_per_step == 0"].'
        )
    return tuple(value)


def _read_path(value: object, key: str, path: Path) -> Path:
    if not isinstance(value, str) or not value:
        raise MemscopeError(f"{path}: {key} names no file.", f'Write {key} = "memscope.toml".')
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
                f"{path}: {key} is no number from {least} to 10000.", f"Write {key} = 3."
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
