"""What a verb needs beyond the core, asked for in one sentence where it is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from memscope.errors import MemscopeError


@contextlib.contextmanager
def needing(extra: str, *packages: str) -> Iterator[None]:
    """Turns a missing one of `packages`, or one that is broken, into what mends it."""
    try:
        yield
    except ImportError as error:
        name = (error.name or "").partition(".")[0]
        if name in packages and isinstance(error, ModuleNotFoundError):
            raise MemscopeError(
                f"This needs {error.name}, which is not installed.",
                f"Install it: pip install 'memscope-torch[{extra}]'",
            ) from None
        broken = next(
            (each for each in packages if each == name or _was_importing(error, each)), ""
        )
        if not broken:
            raise
        reason = " ".join(str(error).split())
        raise MemscopeError(
            f"{broken} is installed and cannot be imported ({reason}).",
            f"Install it anew: pip install --force-reinstall {broken}",
        ) from None


def _was_importing(error: ImportError, package: str) -> bool:
    """Whether the error came out of a file of `package`, such as a library that is not there."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == package:
            return True
        trace = trace.tb_next
    return False
