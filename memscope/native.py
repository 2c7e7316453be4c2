"""Compiles C code once for this machine and keeps it in the cache, in a folder of this user alone.

The result is loaded into the process, so nobody else may be able to write there.
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
    """The shared library of a C file. Compiles it if that has not been done. Raises MemscopeError.

    ``tuned_for``: the processor, if ``flags`` tune the code for it.
    """
    words = [source.read_bytes(), " ".join(flags).encode(), platform.machine().encode()]
    digest = hashlib.sha256(b"\0".join([*words, tuned_for])).hexdigest()[:16]
    target = private_folder() / f"{source.stem}-{digest}.so"
    if not target.exists():
        try:
            _compile(source, flags, target)
        except OSError as error:
            raise MemscopeError(
                f"{target} cannot be created ({error.strerror}).",
                "Free space there, or set MEMSCOPE_CACHE_DIR to another folder.",
            ) from None
    return target


def find_compiler() -> list[str]:
    """The command of a C compiler. Raises MemscopeError if there is none."""
    try:
        named = shlex.split(os.environ.get("CC", ""))
    except ValueError:  # a quotation without an end
        named = []
    if named and shutil.which(named[0]):
        return named
    found = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if found is None:
        raise MemscopeError(
            "There is no C compiler.", "Install one (apt install gcc), or set CC to its command."
        )
    return [found]


def private_folder() -> Path:
    """Folder for compiled code. Raises MemscopeError if other users can write there."""
    folder = cache_folder() / f"native-{os.geteuid()}"
    next_step = "Set MEMSCOPE_CACHE_DIR to a folder of your own."
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise MemscopeError(f"{folder} cannot be created ({error.strerror}).", next_step) from None
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_own or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise MemscopeError(f"{folder} can be written by other users.", next_step)
    return folder


def _compile(source: Path, flags: Sequence[str], target: Path) -> None:
    """Compile, then rename: another process may build the same file at this moment."""
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
            raise MemscopeError(problem, "Set CC to another compiler.") from None
        if run.returncode or not made.exists():
            said = (run.stderr.strip().splitlines() or [f"code {run.returncode}"])[-1]
            problem = f"The compiler {command[0]} cannot compile {source.name} ({said[:200]})."
            raise MemscopeError(problem, "Set CC to another compiler.")
        made.replace(target)
