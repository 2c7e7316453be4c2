"""Where a verb's files go."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from memscope.errors import MemscopeError


def output_folder() -> Path:
    """Where files without `-o` go: MEMSCOPE_DIR, else the current folder."""
    return Path(os.environ.get("MEMSCOPE_DIR") or ".")


def default_path(stem: str, suffix: str) -> Path:
    """The first free STEM-NNN in the output folder."""
    folder = output_folder()
    paths = (folder / f"{stem}-{number:03d}{suffix}" for number in itertools.count(1))
    return next(path for path in paths if not path.exists())


def new_folder(parent: Path) -> Path:
    """A new numbered folder in `parent`. Raises MemscopeError."""
    try:
        return _new_folder(parent)
    except OSError as error:
        raise MemscopeError(
            f"No folder can be made in {parent} ({error.strerror}).",
            "Go to a folder that you may write to, or name one in MEMSCOPE_DIR.",
        ) from None


def _new_folder(parent: Path) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    taken = [int(path.name) for path in parent.iterdir() if path.name.isdecimal()]
    for number in itertools.count(max(taken, default=0) + 1):
        folder = parent / f"{number:03d}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("unreachable")


@contextlib.contextmanager
def appearing(path: Path, *, force: bool) -> Iterator[Path]:
    """A name to write to, which becomes ``path`` once all is written. Raises MemscopeError."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        check_free(path, force=force)
        yield unfinished
        check_free(path, force=force)
        os.replace(unfinished, path)
    except OSError as error:
        raise MemscopeError(
            f"{path} cannot be written ({error.strerror or error}).",
            "Name a folder that you may write to and that has room.",
        ) from None
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def check_free(path: Path, *, force: bool) -> None:
    """Raises MemscopeError where nothing may be written at ``path``."""
    if path.is_dir():
        raise MemscopeError(f"{path} is a folder.", "Name a file in it.")
    if path.exists() and not path.is_file():  # /dev/null, say: --force must not replace it
        raise MemscopeError(f"{path} is no ordinary file.", "Name a new file.")
    if path.exists() and not force:
        raise MemscopeError(f"{path} exists.", "Name another file, or overwrite it with --force.")
