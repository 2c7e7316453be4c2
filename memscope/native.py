"""C compiled once for this machine and kept in the cache, in a folder that is the user's alone.

What lies there is loaded into the process: nobody else may be able to put it there.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from memscope.cache import cache_folder
from memscope.errors import MemscopeError

COMPILERS = ("cc", "gcc", "clang")
BUILD_SECONDS = 120


def build(source: Path, flags: Sequence[str], *, tuned_for: bytes = b"") -> Path:
    """The shared library of a C file, compiled if it is not there yet.

    ``tuned_for``: the processor, where the flags tune the code to it. Raises MemscopeError.
    """
    words = [source.read_bytes(), " ".join(flags).encode(), platform.machine().encode()]
    digest = hashlib.sha256(b"\0".join([*words, tuned_for])).hexdigest()[:16]
    target = private_folder() / f"{source.stem}-{digest}.so"
    if not target.exists():
        try:
            _compile(source, flags, target)
        except OSError as error:
            raise MemscopeError(
                f"{target} cannot be made ({error.strerror}).",
                "Make room there, or set MEMSCOPE_CACHE_DIR to another folder.",
            ) from None
    return target


def find_compiler() -> list[str]:
    """The command of a C compiler. Raises MemscopeError where there is none."""
    try:
        named = shlex.split(os.environ.get("CC", ""))
    except ValueError:  # a quotation without an end
        named = []
    if named and shutil.which(named[0]):
        return named
    found = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if found is None:
        raise MemscopeError(
            "No C compiler is here.", "Install one (apt install gcc), or name it in CC."
        )
    return [found]


def private_folder() -> Path:
    """Where compiled code lies in the cache. Raises MemscopeError where others may write there."""
    folder = cache_folder() / f"native-{os.geteuid()}"
    next_step = "Set MEMSCOPE_CACHE_DIR to a folder of your own."
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise MemscopeError(f"{folder} cannot be made ({error.strerror}).", next_step) from None
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_own or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise MemscopeError(f"{folder} can be written by other users.", next_step)
    return folder


def _compile(source: Path, flags: Sequence[str], target: Path) -> None:
    """By rename: another process may build it at the same moment."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch, target.name)
        command = [*find_compiler(), *flags, str(source), "-o", str(made)]
        try:
            run = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=BUILD_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = f"The compiler {command[0]} does not run ({error})."
            raise MemscopeError(problem, "Name another one in CC.") from None
        if run.returncode or not made.exists():
            said = (run.stderr.strip().splitlines() or [f"code {run.returncode}"])[-1]
            problem = f"The compiler {command[0]} cannot compile {source.name} ({said[:200]})."
            raise MemscopeError(problem, "Name another one in CC.")
        made.replace(target)
