"""What tests within tests run: a decoder that only says what a window would have done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

RunTests = Callable[..., pytest.RunResult]

PROGRAM = '''
import memscope
import pytest
from memscope.events import Kind

STEPS = 4


def decode(uploads=4, calls=0):
    """STEPS steps of 8 layers, ``uploads`` of them uploaded and ``calls`` driver calls in each."""
    recorder = memscope.active_recorder()
    recorder.fact("model", {"layers": 8})
    recorder.emit(Kind.DEVICE_MALLOC, bytes=800, name="weight_pool")
    for step in range(STEPS):
        for layer in range(8):
            if layer < uploads:
                recorder.emit(Kind.UPLOAD, step, layer, "slab", 100, value=7)
            recorder.emit(Kind.LAYER, step, layer, duration_ns=10)
            if layer < uploads:
                recorder.emit(Kind.EVICT, step, layer, None, 100, value=7)
        for _ in range(calls):
            recorder.emit(Kind.DEVICE_MALLOC, step, bytes=1, name="weight_pool")
        recorder.emit(Kind.STEP, step, duration_ns=1000)
'''

FIRST_LINE = PROGRAM.strip("\n").count("\n") + 2  # of what stands below it


def kept_recordings(pytester: pytest.Pytester) -> list[Path]:
    """What lies in the folder for recordings."""
    return sorted((pytester.path / "kept").rglob("*.mscope"))


def limited(limit: str, body: str = "decode()") -> str:
    """One test with one limit."""
    return f"@pytest.mark.memscope({limit!r})\ndef test_it():\n    {body}\n"
