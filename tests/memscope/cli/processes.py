"""Recordings of several processes of one run."""

from __future__ import annotations

import os
from pathlib import Path

from memscope.recorder.recorder import Recorder

GIB = 1 << 30


def record(path: Path, run_id: str, *, pid: int, reserved: int | None = None) -> Path:
    """A recording of process ``pid`` of a run, which held ``reserved`` bytes of a GPU."""
    recorder = begin(path, run_id, pid)
    if reserved is not None:
        recorder.fact("cuda.0", {"name": "H200", "kind": "cuda", "total_bytes": 140 * GIB})
        recorder.sample("torch.reserved_bytes", bytes=reserved, device=0)
    recorder.close()
    return path


def begin(path: Path, run_id: str, pid: int) -> Recorder:
    real, os.environ["MEMSCOPE_RUN_ID"] = os.getpid, run_id
    os.getpid = lambda: pid
    try:
        return Recorder(path)
    finally:
        os.getpid = real
        del os.environ["MEMSCOPE_RUN_ID"]
