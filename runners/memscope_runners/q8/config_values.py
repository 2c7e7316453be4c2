"""Read numbers from a config file that may hold anything."""

from __future__ import annotations

from collections.abc import Mapping

from memscope.errors import MemscopeError
from memscope.text import clean

NEXT_STEP = "Name a Llama, Qwen2, Qwen3 or Qwen3-VL model, or leave out --model."
SHOWN_CHARACTERS = 120


def unsupported(what: object) -> MemscopeError:
    """The error for a model or feature that memscope cannot run."""
    return MemscopeError(f"{clean(what, SHOWN_CHARACTERS)} is not supported.", NEXT_STEP)


def impossible(key: str, value: object) -> MemscopeError:
    """The error for a value that no model can have."""
    shown = clean(repr(value), SHOWN_CHARACTERS)
    return MemscopeError(f"The model's config says {key} = {shown}.", NEXT_STEP)


def number(values: Mapping[str, object], key: str, default: float | None = None) -> float:
    """A number, or `default` if it is missing. Raises MemscopeError for anything else."""
    value = values.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MemscopeError(f"The model's config has no number {key}.", NEXT_STEP)
    return value


def whole(values: Mapping[str, object], key: str, default: int | None = None) -> int:
    """A whole number, or `default` if it is missing. Raises MemscopeError for anything else."""
    value = number(values, key, default)
    if isinstance(value, float) and not value.is_integer():
        raise impossible(key, value)
    return int(value)
