"""Writes a file so that it appears only when it is complete, and replaces another only if asked.

A symbolic link stays; the file it leads to is written.
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
def atomic_write(path: Path, *, force: bool) -> Iterator[Path]:
    """Yields a name to write to. It becomes ``path`` when the block ends well. Raises
    MemscopeError.
    """
    with explained_write_errors(path):
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
def explained_write_errors(path: Path) -> Iterator[None]:
    """Turns OSErrors from writing ``path`` into MemscopeErrors."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> MemscopeError:
    """The MemscopeError for an OSError from writing ``path``."""
    is_long = error.errno == errno.ENAMETOOLONG
    return MemscopeError(
        f"{path} cannot be written ({error.strerror or error}).",
        "Choose a shorter name."
        if is_long
        else "Choose a folder that you may write to and that has space.",
    )


def check_free(path: Path, *, force: bool, to_force: str = "--force") -> None:
    """Raise MemscopeError if ``path`` cannot be written.

    ``to_force``: how the user asks to overwrite a file, for the message.
    """
    with explained_write_errors(path):
        if path.is_dir():
            raise MemscopeError(f"{path} is a folder.", "Name a file in it.")
        if path.exists() and not path.is_file():  # /dev/null, say: --force must not replace it
            raise MemscopeError(f"{path} is not a regular file.", "Name a new file.")
        if path.exists() and not force:
            raise MemscopeError(
                f"{path} exists.", f"Name another file, or overwrite it with {to_force}."
            )
        if _target(path).is_symlink():
            raise MemscopeError(f"{path} is a link to itself.", "Name another file.")
        _check_folder(path)


def _check_folder(path: Path) -> None:
    folder = _target(path).parent
    if folder.exists() and not folder.is_dir():
        raise MemscopeError(f"{folder} is not a folder.", "Name another place.")
    if not folder.is_dir():
        raise MemscopeError(f"The folder {folder} does not exist.", f"Create it: mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _target(path: Path) -> Path:
    """The file that is written: the target of a link, even if it does not exist yet."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path
