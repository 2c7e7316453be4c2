"""What a test gets from a verb that it ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a verb left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]
