"""Small files of the kernel, /proc and cgroups, read with as little as it takes."""

from __future__ import annotations

import os

MAX_BYTES = 1 << 16


def read_kernel_file(path: str | os.PathLike[str]) -> bytes:
    """Its content. Raises OSError.

    Three calls of the system: a file object makes twice as many, and after each the thread has to
    take Python's lock away from the program anew.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, MAX_BYTES)
    finally:
        os.close(file)
