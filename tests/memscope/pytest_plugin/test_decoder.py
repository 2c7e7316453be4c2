"""Limits on our own decoder: they hold each time, and break where they should."""

from __future__ import annotations

import pytest

from tests.memscope.pytest_plugin.program import RunTests

pytest.importorskip("torch")

DECODE = """
from memscope_runners.decode import decode, prepare
from memscope_runners.checkpoint.fetch import open_model
from memscope_runners.settings import Settings

@pytest.fixture(scope="module")
def checkpoint():
    return open_model("synthetic:tiny")

@pytest.mark.parametrize("run", range({runs}))
@pytest.mark.memscope(
    "driver.calls_per_step == 0",
    "pool.hit_rate >= 1",
    "residency.uploads_per_step <= {uploads}",
    "memory.peak_bytes <= {peak}",
)
def test_window(checkpoint, run):
    request = prepare(checkpoint, "a b", Settings("past", 2), max_tokens=6, ignore_eos=True)
    decode(request, recorder=memscope.active_recorder())
"""


def test_limits_hold_in_each_of_many_runs(run_tests: RunTests) -> None:
    run_tests(DECODE.format(runs=10, uploads=4, peak="1 MiB")).assert_outcomes(passed=10)


@pytest.mark.parametrize(
    ("uploads", "peak", "actual"),
    [
        (3, "1 MiB", "residency.uploads_per_step = 4 layers, limit <= 3"),
        (4, "800 KiB", "memory.peak_bytes = 866 KiB, limit <= 800 KiB"),
    ],
)
def test_broken_limit_names_holders(
    run_tests: RunTests, uploads: int, peak: str, actual: str
) -> None:
    result = run_tests(DECODE.format(runs=1, uploads=uploads, peak=peak))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            f"memscope: {actual}*",
            "largest holders at the peak",
            "  374 KiB  weights ready for compute",
            "ledger: device, host *, by the program, at *",
            "memscope: recording kept at *",
        ]
    )
