"""A lock on the GPU between test processes: many tests share it, one that fills it is alone."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: tests there have no GPU
    fcntl = None  # type: ignore[assignment]


def lock_folder() -> Path:
    """One folder for each user and set of visible devices."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "all").replace(os.sep, "-") or "none"
    return Path(tempfile.gettempdir()) / f"memscope-tests-gpu-{user}-{devices}"


@contextlib.contextmanager
def hold_gpu(folder: Path, *, alone: bool) -> Iterator[None]:
    """Wait for the GPU and hold it: with other holders, or alone.

    Whoever waits stands in the gate, so that a test that wants to be alone is not overtaken for
    ever by tests that share. The kernel opens both locks if the process dies.
    """
    if fcntl is None:
        yield
        return
    folder.mkdir(exist_ok=True)
    with (folder / "gpu").open("w") as gpu, (folder / "gate").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(gpu, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # Not left to close(): a child that the test forked may still have the file open.
            fcntl.flock(gpu, fcntl.LOCK_UN)
