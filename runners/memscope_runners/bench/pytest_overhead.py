"""What the pytest plugin costs: trivial tests without it, with it idle, and with a limit on each.

Every run is a pytest of its own; the three take turns, so that what the machine does to one it
does to all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from memscope.errors import MemscopeError
from memscope_runners.bench.intervals import Median, median_with_interval

TESTS = 500
IDLE_LIMIT, MARKED_LIMIT_MS = 1.02, 20.0
_TRIVIAL = "import pytest\n\n\n@pytest.mark.parametrize('number', range({}))\n"
_BODY = "def test_trivial(number):\n    assert number >= 0\n"
_MARK = "@pytest.mark.memscope('host.rss_bytes.peak <= 1 TiB')\n"

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class PytestOverhead:
    """Seconds of whole runs, and the plugin's share."""

    tests: int
    without_s: Median
    idle_s: Median
    idle_ratio: Median
    marked_ms_per_test: Median

    def to_json(self) -> dict[str, Any]:
        limits = {"idle_ratio": IDLE_LIMIT, "marked_ms_per_test": MARKED_LIMIT_MS}
        return asdict(self) | {"limits": limits}

    def rows(self) -> list[tuple[str, ...]]:
        """What, metric, bound: for people."""
        return [
            (f"{self.tests} trivial tests without the plugin, s", str(self.without_s), ""),
            ("with the plugin idle, s", str(self.idle_s), ""),
            ("idle / without", str(self.idle_ratio), f"<= {IDLE_LIMIT}"),
            (
                "a limit on each, ms more a test",
                str(self.marked_ms_per_test),
                f"<= {MARKED_LIMIT_MS:g}",
            ),
        ]


def measure(*, rounds: int, tests: int = TESTS, progress: Progress) -> PytestOverhead:
    """``rounds`` turns of the three, after one that warms up. Raises MemscopeError."""
    without: list[float] = []
    idle: list[float] = []
    marked: list[float] = []
    with tempfile.TemporaryDirectory(prefix="memscope-bench-") as name:
        folder = Path(name)
        head = _TRIVIAL.format(tests)
        (folder / "test_plain.py").write_text(head + _BODY)
        (folder / "test_marked.py").write_text(head + _MARK + _BODY)
        for turn in range(rounds + 1):
            taken = [
                _run(folder, "test_plain.py", "-p", "no:memscope"),
                _run(folder, "test_plain.py"),
                _run(folder, "test_marked.py"),
            ]
            if turn:
                for seconds, found in zip((without, idle, marked), taken, strict=True):
                    seconds.append(found)
            progress("rounds", turn, rounds)
    pairs = zip(marked, idle, strict=True)
    return PytestOverhead(
        tests=tests,
        without_s=median_with_interval(without),
        idle_s=median_with_interval(idle),
        idle_ratio=median_with_interval([a / b for a, b in zip(idle, without, strict=True)]),
        marked_ms_per_test=median_with_interval([(a - b) * 1e3 / tests for a, b in pairs]),
    )


def _run(folder: Path, *arguments: str) -> float:
    """Seconds of one run of pytest."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    # Modules are compiled once, in the turn that warms up, wherever the environment forbids it.
    settings = {"PYTEST_ADDOPTS": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    settings["PYTHONDONTWRITEBYTECODE"] = ""
    start = perf_counter()
    run = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=os.environ | settings
    )
    taken = perf_counter() - start
    if run.returncode != pytest.ExitCode.OK:
        said = (run.stderr + run.stdout)[-500:]
        raise MemscopeError(f"pytest did not pass: {said}", "Is memscope's plugin installed?")
    return taken
