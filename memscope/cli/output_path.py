"""Where a verb writes its files."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from memscope.errors import MemscopeError


def output_folder() -> Path:
    """The folder for files without `-o`: MEMSCOPE_DIR, else the current folder."""
    return Path(os.environ.get("MEMSCOPE_DIR") or ".")


def default_path(stem: str, suffix: str) -> Path:
    """The first free path STEM-NNN in the output folder."""
    folder = output_folder()
    paths = (folder / f"{stem}-{number:03d}{suffix}" for number in itertools.count(1))
    return next(path for path in paths if not path.exists())


def check_apart(path: Path, sources: Iterable[Path]) -> None:
    """Raises MemscopeError if ``path`` is one of ``sources``: writing would destroy the input."""
    for source in sources:
        with contextlib.suppress(OSError):  # one of them is not there
            if path.samefile(source):
                raise MemscopeError(
                    f"{path} is the input and cannot be the output too.", "Name another file."
                )


def new_folder(parent: Path) -> Path:
    """A new numbered folder in `parent`. Raises MemscopeError."""
    try:
        return _new_folder(parent)
    except OSError as error:
        raise MemscopeError(
            f"A folder cannot be created in {parent} ({error.strerror}).",
            "Change to a folder that you can write to, or name one in MEMSCOPE_DIR.",
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
