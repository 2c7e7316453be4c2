"""Progress of long work."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much is done, and the total."""


def unseen(what: str, done: int, total: int) -> None:
    """A Progress that shows nothing."""
