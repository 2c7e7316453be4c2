"""Tests that fill the GPU have it alone, beside others in other processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.gpu_lock import hold_gpu
from tests.paths import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no flock on Windows")

HOLD = """
import sys
from pathlib import Path
from tests.gpu_lock import hold_gpu
print("waits", flush=True)
with hold_gpu(Path(sys.argv[1]), alone=sys.argv[2] == "alone"):
    print("holds", flush=True)
    sys.stdin.readline()
print("left", flush=True)
"""


class Holder:
    """Another process that wants the GPU, and holds it until it is told to leave."""

    def __init__(self, folder: Path, how: str) -> None:
        self.said = folder.parent / f"{time.monotonic_ns()}.txt"
        with self.said.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", HOLD, folder, how],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=out,
            )

    def wait_for(self, word: str) -> None:
        deadline = time.monotonic() + 60
        while word not in self.said.read_text():
            assert time.monotonic() < deadline, self.said.read_text()
            time.sleep(0.01)

    def waits(self) -> bool:
        """Whether it asked and still waits a while later."""
        self.wait_for("waits")
        time.sleep(0.3)
        return "holds" not in self.said.read_text()

    def leave(self) -> None:
        self.process.communicate(b"\n", timeout=60)
        assert self.process.returncode == 0


def test_many_share_and_one_is_alone(tmp_path: Path) -> None:
    folder = tmp_path / "lock"
    shared = Holder(folder, "shared")
    shared.wait_for("holds")
    with hold_gpu(folder, alone=False):  # shared with the other process
        alone = Holder(folder, "alone")
        assert alone.waits()
    assert alone.waits()
    shared.leave()
    alone.wait_for("holds")
    alone.leave()


def test_one_that_waits_to_be_alone_is_not_overtaken(tmp_path: Path) -> None:
    folder = tmp_path / "lock"
    first = Holder(folder, "shared")
    first.wait_for("holds")
    alone = Holder(folder, "alone")
    assert alone.waits()
    late = Holder(folder, "shared")
    assert late.waits()
    first.leave()
    alone.wait_for("holds")
    assert late.waits()
    alone.leave()
    late.wait_for("holds")
    late.leave()


def test_a_process_that_dies_leaves_the_gpu(tmp_path: Path) -> None:
    folder = tmp_path / "lock"
    alone = Holder(folder, "alone")
    alone.wait_for("holds")
    alone.process.kill()
    alone.process.communicate()
    with hold_gpu(folder, alone=True):
        pass
