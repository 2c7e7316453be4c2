"""A file under a name of its own until it is whole, and what a killed process left of one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # on Windows, where what a killed process left stays
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the name `path` at the end, whole or not at all.

    Until then it is `.NAME.PID` beside it, and locked. Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with _open_locked(temporary) as file:
        try:
            yield file
            file.flush()
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def remove_leftovers(folder: Path, suffix: str) -> None:
    """Removes every `.NAME.PID` in `folder`, NAME of that suffix, that no process is writing."""
    if fcntl is None:
        return
    for path in folder.glob(f".*{suffix}.*"):
        if path.suffix[1:].isdecimal():
            with contextlib.suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _open_locked(path: Path) -> BinaryIO:
    """An empty file; opened again where it was taken for a leftover before it was locked."""
    while True:
        file = path.open("ab")
        if fcntl is None:
            return file
        fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.truncate(0)
                return file
        file.close()
