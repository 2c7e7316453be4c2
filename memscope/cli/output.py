"""Where a verb's files go."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable
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


def check_apart(path: Path, sources: Iterable[Path]) -> None:
    """Raises MemscopeError where ``path`` is one of ``sources``: what is read would be lost."""
    for source in sources:
        with contextlib.suppress(OSError):  # one of them is not there
            if path.samefile(source):
                raise MemscopeError(
                    f"{path} is what is read, and is not written over.", "Name another file."
                )


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
