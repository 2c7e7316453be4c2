"""A file that appears once all of it is written; what lies there is replaced where that is asked.

A symbolic link stays one: what it leads to is written.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from memscope.errors import MemscopeError


@contextlib.contextmanager
def appearing(path: Path, *, force: bool) -> Iterator[Path]:
    """A name to write to, which becomes ``path`` once all is written. Raises MemscopeError."""
    target = _target(path)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        check_free(path, force=force)
        yield unfinished
        check_free(path, force=force)
        with contextlib.suppress(FileNotFoundError):
            os.chmod(unfinished, stat.S_IMODE(target.stat().st_mode))
        os.replace(unfinished, target)
    except OSError as error:
        raise MemscopeError(
            f"{path} cannot be written ({error.strerror or error}).",
            "Name a folder that you may write to and that has room.",
        ) from None
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def check_free(path: Path, *, force: bool, to_force: str = "--force") -> None:
    """Raises MemscopeError where nothing may be written at ``path``.

    ``to_force``: how its reader would write that it may be overwritten.
    """
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
        raise MemscopeError(
            f"{path} cannot be written (Permission denied).",
            "Name a folder with room that you may write to.",
        )


def _target(path: Path) -> Path:
    """What is written: what a link leads to, also where that is not there yet."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path
