"""How long work tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much is done, and how much there is."""


def unseen(what: str, done: int, total: int) -> None:
    """The Progress of a caller that wants none."""
