"""The file that a recorder writes. It overwrites nothing, and is locked while it grows.

A program may close every descriptor it has, ours too, and open its own files under the same
numbers. So each write first checks that the descriptor is still our file's.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import IO

from memscope.atomic_file import check_free, explained_write_errors
from memscope.errors import MemscopeError

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

_given_up: list[IO[bytes]] = []  # files whose descriptors are the program's own by now


class OutputFile:
    """A new file at ``path``, locked until closed. ``size``: bytes that were written whole."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, FileExistsError among them: it overwrites nothing."""
        self.path = path
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 - closed by `close`
        self._identity = _identify(self._file)
        self.size = 0
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)

    @property
    def is_ours(self) -> bool:
        """Whether the descriptor is still that of the file."""
        return _identify(self._file) == self._identity

    @property
    def is_at_path(self) -> bool:
        """Whether the file is still at its path: nobody has moved or replaced it."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def write(self, data: bytes) -> None:
        """Write all of ``data``. Raises OSError; ``cut_back`` then removes the part that was
        written.
        """
        if not self.is_ours:
            raise OSError(errno.EBADF, "the program closed its descriptor")
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
        self.size += len(data)

    def cut_back(self) -> None:
        """Cut the file to the last whole write."""
        if self.is_ours:
            self._file.truncate(self.size)
            self._file.seek(self.size)

    def close(self) -> None:
        """Close the file, unless the program has taken over the descriptor."""
        if self.is_ours:
            self._file.close()
        else:
            _given_up.append(self._file)

    def discard(self) -> None:
        """Close and delete the file."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink()


def check_writable(path: Path, *, force: bool, to_force: str = "--force") -> None:
    """Raise MemscopeError if no recording can be written at ``path``.

    ``to_force``: how the user asks to overwrite a file, for the message.
    """
    with explained_write_errors(path):
        if path.is_symlink() and not path.is_dir() and (path.is_file() or not path.exists()):
            raise MemscopeError(
                f"{path} is a link, and a recording is not written through one.",
                f"Name the file that it leads to: {os.path.realpath(path)}",
            )
        if path.is_dir():
            raise MemscopeError(f"{path} is a folder.", f"Name a file in it: {path / 'run.mscope'}")
    check_free(path, force=force, to_force=to_force)


def _identify(file: IO[bytes]) -> tuple[int, int] | None:
    """Device and inode of the descriptor; None if it is not open."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
