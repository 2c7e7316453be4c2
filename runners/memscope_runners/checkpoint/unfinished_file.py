"""Write a file under a temporary, locked name; remove what killed processes left.

The lock tells a file that is being written from a leftover.
"""

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
    """Open a file to write; it is renamed to `path` once it is complete.

    Until then it is named `.NAME.PID` and locked. Raises OSError.
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
    """Remove each `.NAME.PID` in `folder` that no process is writing; NAME ends in `suffix`."""
    if fcntl is None:
        return
    for path in folder.glob(f".*{suffix}.*"):
        if path.suffix[1:].isdecimal():
            with contextlib.suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _open_locked(path: Path) -> BinaryIO:
    """Open an empty file; again if it was removed as a leftover before it was locked."""
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
