"""Which limits count for a test, by where its markers stand, and what a mistake in one says."""

from __future__ import annotations

import pytest

from tests.memscope.pytest_plugin.program import FIRST_LINE, RunTests, limited


def test_markers_add_up(run_tests: RunTests) -> None:
    result = run_tests(
        "@pytest.mark.memscope('driver.calls_per_step == 0')\n"
        "class TestIt:\n"
        "    @pytest.mark.memscope('residency.uploads_per_step <= 4')\n"
        "    def test_fine(self):\n        decode()\n"
        "    @pytest.mark.memscope('residency.uploads_per_step <= 4')\n"
        "    def test_calls(self):\n        decode(calls=1)\n"
        "    @pytest.mark.memscope('residency.uploads_per_step <= 4')\n"
        "    def test_uploads(self):\n        decode(uploads=5)\n"
    )
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "FAILED *test_calls - *memscope: driver.*",
            "FAILED *test_uploads - *memscope: residency.*",
        ]
    )


def test_two_markers_of_one_function_both_count(run_tests: RunTests) -> None:
    result = run_tests(
        "@pytest.mark.parametrize('uploads', [2, 3, 4])\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 3')\n"
        "@pytest.mark.memscope('residency.uploads_per_step >= 3')\n"
        "def test_it(uploads):\n    decode(uploads)\n"
    )
    result.assert_outcomes(passed=1, failed=2)


def test_nearest_marker_decides_for_its_metric(run_tests: RunTests) -> None:
    result = run_tests(
        "pytestmark = pytest.mark.memscope('residency.uploads_per_step <= 2')\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 3')\n"
        "class TestIt:\n"
        "    def test_class(self):\n        decode(3)\n"
        "    @pytest.mark.memscope('residency.uploads_per_step <= 4')\n"
        "    def test_function(self):\n        decode(4)\n"
        "def test_module():\n    decode(3)\n"
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["FAILED *::test_module *"])


def test_parameter_decides_before_its_function(run_tests: RunTests) -> None:
    own = "marks=pytest.mark.memscope('residency.uploads_per_step <= 5')"
    result = run_tests(
        "@pytest.mark.parametrize(\n"
        f"    'uploads', [4, pytest.param(5, {own}), pytest.param(6, {own})]\n"
        ")\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 4', 'driver.calls_per_step == 0')\n"
        "def test_it(uploads):\n    decode(uploads)\n"
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["FAILED *test_it?6? *"])
    result.stdout.no_fnmatch_line("* <= 4 *fail*")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("'residency.upload_per_step <= 3'", "There is no metric 'residency.upload_per_step'*"),
        ("'memory.peak_bytes <= 2 XB'", "memory.peak_bytes is measured in bytes, not in 'XB'*"),
        ("'memory.peak_bytes <= lots'", "memory.peak_bytes is measured in bytes*"),
        ("'memory.peak_bytes <= 1e999 B'", "*finite*"),
        ("'memory.peak_bytes'", "memory.peak_bytes has no default limit*"),
        ("'2 GiB'", "*2 GiB*"),
        ("''", "'' is not a limit*"),
        ("3", "3 is not a string*"),
        ("", "the marker names no limit*"),
        ("repeat=3", "the marker names no limit*"),
        ("limit='memory.peak_bytes <= 2 GiB'", "the marker takes no limit. It takes repeat, *"),
        ("'memory.peak_bytes <= 1 B', repeat=0", "repeat=0 is not a whole number from 1. *"),
        ("'memory.peak_bytes <= 1 B', repeat='2'", "repeat='2' is not a whole number from 1. *"),
        ("'memory.peak_bytes <= 1 B', warmup=-1", "warmup=-1 is not a whole number from 0. *"),
        ("'memory.peak_bytes <= 1 B', fixtures=1", "fixtures=1 is not True or False. *"),
        ("'memory.peak_bytes <= 1 B', tolerance='x'", "tolerance='x' is not a share *"),
        (
            "'memory.peak_bytes <= 1 B', fixtures=True, repeat=2",
            "fixtures=True cannot be *",
        ),
        ("baseline=True", "baseline=True needs a baseline file. *"),
    ],
)
def test_bad_marker_fails_its_test_alone(run_tests: RunTests, arguments: str, problem: str) -> None:
    result = run_tests(
        f"@pytest.mark.memscope({arguments})\ndef test_bad():\n    raise SystemError\n"
        + limited("residency.uploads_per_step <= 4")
        + "def test_unmarked():\n    pass\n"
    )
    result.assert_outcomes(errors=1, passed=2)
    result.stdout.fnmatch_lines(
        ["*ERROR at setup of test_bad*", f"memscope: test_it.py:{FIRST_LINE}: {problem}"]
    )


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("pytestmark = pytest.mark.memscope('no.metric <= 1')\n\ndef test_it(): pass\n", 0),
        (
            "@pytest.mark.parametrize('x', [\n"
            "    1,\n"
            "    pytest.param(2, marks=pytest.mark.memscope('no.metric <= 1')),\n"
            "])\n"
            "def test_it(x): pass\n",
            2,
        ),
        (
            "LIMIT = '.'.join(['no', 'metric <= 1'])\n"
            "@pytest.mark.memscope(LIMIT)\n"
            "def test_it(): pass\n",
            1,
        ),
    ],
)
def test_bad_limit_names_its_line(run_tests: RunTests, source: str, line: int) -> None:
    result = run_tests(source)
    assert result.parseoutcomes()["errors"] == 1
    place = f"test_it.py:{FIRST_LINE + line}"
    result.stdout.fnmatch_lines([f"memscope: {place}: There is no metric 'no.metric'*"])
