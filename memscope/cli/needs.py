"""What a verb needs beyond the core, asked for in one sentence where it is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from memscope.errors import MemscopeError


@contextlib.contextmanager
def needing(extra: str, *packages: str) -> Iterator[None]:
    """Turns a missing one of `packages` into the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in packages:
            raise
        raise MemscopeError(
            f"This needs {error.name}, which is not installed.",
            f"Install it: pip install 'memscope-torch[{extra}]'",
        ) from None
