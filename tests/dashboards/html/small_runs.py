"""Small recordings for the report: each made by a real recorder."""

from __future__ import annotations

import os
from pathlib import Path

from memscope import Recorder
from memscope.events import Kind

LAYERS, KEEP, SLAB_BYTES = 6, 2, 1 << 20
HOSTILE = "<script>alert(1)</script></script><b onload='x'>\u2028\x1b[31m\u202e$title \"&"


def record_nothing(path: Path) -> Path:
    """Header and end marker alone."""
    Recorder(path).close()
    return path


def record_one_event(path: Path) -> Path:
    recorder = Recorder(path)
    recorder.mark("only this")
    recorder.close()
    return path


def record_run(path: Path, *, name: str = "tiny", kind: str = "host", steps: int = 8) -> Path:
    """Steps of a window that keeps 2 of 6 layers on a device limited to 16 MiB.

    The weight pool misses once a step, which breaks a default limit.
    """
    recorder = Recorder(path)
    recorder.fact(
        "device.0", {"name": name, "kind": kind, "total_bytes": 1 << 34, "limit_bytes": 1 << 24}
    )
    recorder.fact("model", {"name": name, "layers": LAYERS, "entries_per_layer": 7})
    recorder.fact("policy", {"policy": "past", "keep": KEEP, "allocator": "pool"})
    recorder.fact("run.warmup_steps", 2)
    recorder.mark(name)
    for step in range(steps):
        _record_step(recorder, step, name)
    recorder.close()
    return path


def record_out_of_memory(path: Path) -> Path:
    recorder = Recorder(path)
    data = {"scope": "engine", "free": 1 << 20, "allocated": 5 << 20, "limit": 6 << 20}
    recorder.emit(Kind.OOM, 3, bytes=2 << 20, data=data)
    recorder.close()
    return path


def cut(path: Path) -> Path:
    """``path`` without its end marker, as a killed program leaves it."""
    os.truncate(path, path.stat().st_size - 8)
    return path


def _record_step(recorder: Recorder, step: int, name: str) -> None:
    for layer in range(LAYERS):
        if step == 0 or layer < LAYERS - KEEP:
            kind = Kind.POOL_HIT if layer else Kind.POOL_MISS
            recorder.emit(kind, step, layer, name, SLAB_BYTES)
            if kind == Kind.POOL_MISS:
                recorder.emit(Kind.DEVICE_MALLOC, step, layer, "weight_pool", SLAB_BYTES)
            recorder.emit(Kind.UPLOAD, step, layer, name, SLAB_BYTES, duration_ns=1000, value=7)
        recorder.emit(Kind.LAYER, step, layer, duration_ns=5000)
        recorder.emit(Kind.EVICT, step, (layer - KEEP) % LAYERS, bytes=SLAB_BYTES, value=7)
    recorder.sample("device.allocated_bytes", bytes=(3 + step) * SLAB_BYTES, step=step)
    recorder.sample("pool.idle_bytes", bytes=SLAB_BYTES, step=step)
    recorder.sample("host.rss_bytes", bytes=100 << 20, step=step)
    recorder.emit(Kind.STEP, step, duration_ns=60_000)
