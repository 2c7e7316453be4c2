"""Packages that a verb needs and the core does not. A missing one is one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from memscope.errors import MemscopeError


@contextlib.contextmanager
def require(extra: str, *packages: str) -> Iterator[None]:
    """Turn the ImportError of one of ``packages`` into a MemscopeError with the command to run."""
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
            f"{broken} is installed but cannot be imported ({reason}).",
            f"Reinstall it: pip install --force-reinstall {broken}",
        ) from None


def _was_importing(error: ImportError, package: str) -> bool:
    """Whether a file of `package` raised the error, for example because a library is missing."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == package:
            return True
        trace = trace.tb_next
    return False
