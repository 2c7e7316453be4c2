"""The folder of a session's recordings: the one of --memscope-output, or a temporary one."""

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
    """Keeps all recordings in ``output``. Without it, only those of failed tests are kept."""

    def __init__(self, output: Path | None = None) -> None:
        self.keeps_all = output is not None
        self._path = output

    def path_for(self, test: str, run: int | None = None) -> Path:
        """The recording of a test, or of one run of it. A rerun overwrites it."""
        if self._path is None:
            base = os.environ.get("MEMSCOPE_DIR") or None
            self._path = Path(tempfile.mkdtemp(prefix="memscope-pytest-", dir=base))
        code = f"{zlib.crc32(test.encode()):08x}"  # two tests may have the same name
        number = "" if run is None else f"-{run}"
        return self._path / f"{_file_name(test)}-{code}{number}.mscope"

    def discard(self, paths: Iterable[Path]) -> bool:
        """Remove recordings, unless all are kept. Returns whether they were removed."""
        if not self.keeps_all:
            for path in paths:
                remove(path)
        return not self.keeps_all

    def close(self) -> None:
        """Remove the temporary folder if nothing was kept in it."""
        if self._path is not None and not self.keeps_all:
            with contextlib.suppress(OSError):
                self._path.rmdir()


def remove(path: Path) -> None:
    """Remove a recording and its earlier segments."""
    with contextlib.suppress(OSError):
        for each in (path, *path.parent.glob(f"{glob.escape(path.stem)}.*{path.suffix}")):
            each.unlink()


def _file_name(test: str) -> str:
    """The test's name with its parameters, as a file name ("test_decode-keep20")."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", test.rpartition("::")[2]).strip("-")[:80] or "test"
