"""Where a session's recordings lie: a folder that was asked for, or a temporary one."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path


class RecordingFolder:
    """``output``: where all recordings stay. Else only those that are worth a second look do."""

    def __init__(self, output: Path | None = None) -> None:
        self.keeps_all = output is not None
        self._path = output

    def path_for(self, test: str, run: int | None = None) -> Path:
        """Of one test, or of one of its runs; always the same, so that a rerun replaces it."""
        if self._path is None:
            base = os.environ.get("MEMSCOPE_DIR") or None
            self._path = Path(tempfile.mkdtemp(prefix="memscope-pytest-", dir=base))
        code = f"{zlib.crc32(test.encode()):08x}"  # of two tests with names alike
        number = "" if run is None else f"-{run}"
        return self._path / f"{_file_name(test)}-{code}{number}.mscope"

    def discard(self, paths: Iterable[Path]) -> bool:
        """Remove recordings of tests that passed; whether they are gone."""
        if not self.keeps_all:
            for path in paths:
                remove(path)
        return not self.keeps_all

    def close(self) -> None:
        """Remove a temporary folder in which nothing was kept."""
        if self._path is not None and not self.keeps_all:
            with contextlib.suppress(OSError):
                self._path.rmdir()


def remove(path: Path) -> None:
    """A recording, and the earlier segments of a long one."""
    with contextlib.suppress(OSError):
        for each in (path, *path.parent.glob(f"{glob.escape(path.stem)}.*{path.suffix}")):
            each.unlink()


def _file_name(test: str) -> str:
    """The test's own name as a file name, its parameters included ("test_decode-keep20")."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", test.rpartition("::")[2]).strip("-")[:80] or "test"
