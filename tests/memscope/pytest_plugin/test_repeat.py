"""A body that runs several times: the median counts, and each run has its own recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from memscope.analysis.timeline.read import read_timeline
from memscope.reader.recording import open_recording
from tests.memscope.pytest_plugin.program import RunTests, kept_recordings


def body(*uploads: int, arguments: str = "") -> str:
    """A test whose runs upload so many layers a step, one after the other."""
    return (
        f"UPLOADS = iter({uploads})\n"
        f"@pytest.mark.memscope('residency.uploads_per_step <= 4', {arguments})\n"
        "def test_it():\n    decode(next(UPLOADS))\n"
    )


@pytest.mark.parametrize(
    ("uploads", "arguments", "outcome"),
    [
        ((4, 8, 3), "repeat=3", "passed"),
        ((4, 8, 5), "repeat=3", "failed"),
        ((3, 5), "repeat=2", "passed"),  # the mean of the two in the middle
        ((3, 6), "repeat=2", "failed"),
        ((8, 4), "warmup=1", "passed"),
        ((4, 8), "warmup=1", "failed"),
        ((8, 8, 5, 4, 4), "warmup=2, repeat=3", "passed"),
    ],
)
def test_median_after_warmup_is_judged(
    run_tests: RunTests, uploads: tuple[int, ...], arguments: str, outcome: str
) -> None:
    run_tests(body(*uploads, arguments=arguments)).assert_outcomes(**{outcome: 1})


def test_failure_names_each_value_and_the_typical_recording(
    run_tests: RunTests, pytester: pytest.Pytester
) -> None:
    result = run_tests(body(7, 3, 5, 8, arguments="warmup=1, repeat=3"))
    (recording,) = kept_recordings(pytester)
    result.stdout.fnmatch_lines(
        [
            "memscope: residency.uploads_per_step = 5 layers, limit <= 4 "
            "(median of 3 layers, 5 layers, 8 layers)",
            "memscope: recording kept at *-3.mscope",
        ]
    )
    assert uploads_of(recording) == 5 * 4


def uploads_of(path: Path) -> int:
    with open_recording(path) as recording:
        return read_timeline(recording).counts["upload"]


def test_output_keeps_each_repetition(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    source = body(8, 2, 3, arguments="warmup=1, repeat=2")
    run_tests(source, "--memscope-output", "out").assert_outcomes(passed=1)
    paths = sorted((pytester.path / "out").glob("*.mscope"))
    assert [uploads_of(path) for path in paths] == [2 * 4, 3 * 4]


def test_pyproject_repeats_marked_tests_alone(
    run_tests: RunTests, pytester: pytest.Pytester
) -> None:
    pytester.makepyprojecttoml("[tool.memscope]\nrepeat = 2\nwarmup = 1\n")
    result = run_tests(
        "RUNS = []\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 4')\n"
        "def test_marked():\n    RUNS.append(1)\n    decode()\n"
        "def test_unmarked():\n    assert len(RUNS) == 3\n    RUNS.append(1)\n"
        "def test_last():\n    assert len(RUNS) == 4\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 4', repeat=1, warmup=0)\n"
        "def test_own():\n    RUNS.append(1)\n    decode()\n"
        "def test_end():\n    assert len(RUNS) == 5\n"
    )
    result.assert_outcomes(passed=5)


def test_fixtures_are_made_once(run_tests: RunTests) -> None:
    result = run_tests(
        "@pytest.fixture\n"
        "def runs():\n    made = []\n    yield made\n    assert len(made) == 3\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 4', repeat=3)\n"
        "def test_it(runs):\n    runs.append(1)\n    decode()\n"
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(("failing", "number"), [(1, "-1"), (2, "-2")])
def test_first_failure_ends_the_repetitions(
    run_tests: RunTests, pytester: pytest.Pytester, failing: int, number: str
) -> None:
    result = run_tests(
        "RUNS = []\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 4', warmup=1, repeat=2)\n"
        f"def test_it():\n    RUNS.append(1)\n    decode()\n    assert len(RUNS) != {failing}\n"
        f"def test_runs():\n    assert len(RUNS) == {failing}\n"
    )
    result.assert_outcomes(passed=1, failed=1)
    (recording,) = kept_recordings(pytester)
    assert recording.stem.endswith(number)


def test_unittest_body_repeats(run_tests: RunTests) -> None:
    result = run_tests(
        "import unittest\n"
        "UPLOADS = iter((8, 4, 3))\n"
        "class TestIt(unittest.TestCase):\n"
        "    def setUp(self):\n        self.uploads = next(UPLOADS)\n"
        "    @pytest.mark.memscope('residency.uploads_per_step <= 4', repeat=3)\n"
        "    def test_it(self):\n        decode(self.uploads)\n"
    )
    result.assert_outcomes(passed=1)


def test_coroutine_repeats(run_tests: RunTests) -> None:
    result = run_tests(
        "UPLOADS = iter((8, 4, 3, 9))\n"
        "@pytest.mark.asyncio\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 4', repeat=3)\n"
        "async def test_it():\n    decode(next(UPLOADS))\n"
        "def test_left():\n    assert list(UPLOADS) == [9]\n",
        "-p",
        "pytest_asyncio.plugin",
    )
    result.assert_outcomes(passed=2)


def test_unmeasured_repetition_is_no_median(run_tests: RunTests) -> None:
    result = run_tests(
        "RUNS = []\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 4', repeat=3)\n"
        "def test_it():\n    RUNS.append(1)\n    decode() if len(RUNS) != 2 else None\n",
        "-rs",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED *not measured, in 1 of 3 repetitions: no weight upload*"])
