"""A file that appears once all of it is written; what lies there is replaced where that is asked.

A symbolic link stays one: what it leads to is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from memscope.errors import MemscopeError

NAME_CHARACTERS = 50  # of an unfinished file: of four bytes each they still make a name


@contextlib.contextmanager
def appearing(path: Path, *, force: bool) -> Iterator[Path]:
    """A name to write to, which becomes ``path`` once all is written. Raises MemscopeError."""
    with writing(path):
        target = _target(path)
        # A name that nobody can know before, so that no link of theirs waits there.
        name = f".{target.name[:NAME_CHARACTERS]}.{secrets.token_hex(8)}"
        unfinished = target.with_name(name)
        try:
            check_free(path, force=force)
            yield unfinished
            check_free(path, force=force)
            with contextlib.suppress(FileNotFoundError):
                os.chmod(unfinished, stat.S_IMODE(target.stat().st_mode))
            os.replace(unfinished, target)
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink()


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system says against writing ``path`` is raised as MemscopeError."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> MemscopeError:
    """What to raise where ``error`` came of writing ``path``."""
    is_long = error.errno == errno.ENAMETOOLONG
    return MemscopeError(
        f"{path} cannot be written ({error.strerror or error}).",
        "Name it shorter." if is_long else "Name a folder with room that you may write to.",
    )


def check_free(path: Path, *, force: bool, to_force: str = "--force") -> None:
    """Raises MemscopeError where nothing may be written at ``path``.

    ``to_force``: how its reader would write that it may be overwritten.
    """
    with writing(path):
        if path.is_dir():
            raise MemscopeError(f"{path} is a folder.", "Name a file in it.")
        if path.exists() and not path.is_file():  # /dev/null, say: --force must not replace it
            raise MemscopeError(f"{path} is no ordinary file.", "Name a new file.")
        if path.exists() and not force:
            raise MemscopeError(
                f"{path} exists.", f"Name another file, or overwrite it with {to_force}."
            )
        if _target(path).is_symlink():
            raise MemscopeError(f"{path} is a link that leads to itself.", "Name another file.")
        _check_folder(path)


def _check_folder(path: Path) -> None:
    folder = _target(path).parent
    if folder.exists() and not folder.is_dir():
        raise MemscopeError(f"{folder} is no folder.", "Name another place.")
    if not folder.is_dir():
        raise MemscopeError(f"There is no folder {folder}.", f"Make it: mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _target(path: Path) -> Path:
    """What is written: what a link leads to, also where that is not there yet."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path
