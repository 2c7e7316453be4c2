"""What a session leaves: the table, the artefact, JUnit's properties; with workers and reruns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.memscope.pytest_plugin.program import RunTests, kept_recordings, limited

FOUR = (
    "@pytest.mark.parametrize('uploads', [2, 3, 4, 5])\n"
    "@pytest.mark.memscope('residency.uploads_per_step <= 4')\n"
    "def test_it(uploads):\n    decode(uploads)\n"
    "@pytest.mark.memscope('memory.peak_bytes <= 1 GiB')\n"
    "def test_unmeasured():\n    decode()\n"
    "def test_unmarked():\n    pass\n"
)
WORKERS = ("-p", "xdist", "-n2")
ALONE_AND_SPREAD = [(), pytest.param(WORKERS, marks=pytest.mark.slow)]
RERUNS = ("-p", "pytest_rerunfailures", "--reruns=2")
IMPROVING = (
    "calls = []\n"
    "@pytest.mark.memscope('residency.uploads_per_step <= 3')\n"
    "def test_it():\n    calls.append(1)\n    decode(uploads=5 - len(calls))\n"
)


def read_results(pytester: pytest.Pytester, folder: str = "out") -> dict[str, Any]:
    results: dict[str, Any] = json.loads(
        (pytester.path / folder / "memscope-results.json").read_text()
    )
    return results


def junit_properties(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Test → its properties."""
    return {
        case.attrib["name"]: [
            (each.attrib["name"], each.attrib["value"]) for each in case.iter("property")
        ]
        for case in ElementTree.parse(path).iter("testcase")
    }


@pytest.mark.parametrize("options", ALONE_AND_SPREAD)
def test_table_shows_the_worst_first(run_tests: RunTests, options: tuple[str, ...]) -> None:
    result = run_tests(FOUR, *options)
    result.assert_outcomes(passed=4, failed=1, skipped=1)
    limit = "residency.uploads_per_step <= 4"
    result.stdout.fnmatch_lines(
        [
            "=* memscope =*",
            f"  fail          test_it.py::test_it[[]5]       {limit}  5 layers",
            "  not measured  test_it.py::test_unmeasured *no device is recorded",
            f"  pass          test_it.py::test_it[[]2]       {limit}  2 layers",
        ]
    )


@pytest.mark.parametrize("options", ALONE_AND_SPREAD)
def test_artefact_holds_each_measured_test(
    run_tests: RunTests, pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    result = run_tests(FOUR, "--memscope-output", "out", *options)
    tests = read_results(pytester)["tests"]
    assert [(test["test"], test["outcome"]) for test in tests] == [
        ("test_it.py::test_it[2]", "passed"),
        ("test_it.py::test_it[3]", "passed"),
        ("test_it.py::test_it[4]", "passed"),
        ("test_it.py::test_it[5]", "failed"),
        ("test_it.py::test_unmeasured", "skipped"),
    ]
    assert [test["limits"][0]["verdict"] for test in tests] == ["pass"] * 3 + [
        "fail",
        "not measured",
    ]
    uploads = [test["metrics"]["residency.uploads_per_step"] for test in tests]
    assert [metric["value"] for metric in uploads] == [2, 3, 4, 5, 4]
    assert uploads[0]["unit"] == "layers"
    assert all(Path(path).is_file() for test in tests for path in test["recordings"])
    result.stdout.fnmatch_lines([f"results: {pytester.path}/out/memscope-results.json"])


@pytest.mark.parametrize("options", ALONE_AND_SPREAD)
def test_junit_has_metrics_and_verdicts(
    run_tests: RunTests, pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    run_tests(FOUR, "--junit-xml", "junit.xml", *options)
    found = junit_properties(pytester.path / "junit.xml")
    assert ("memscope.residency.uploads_per_step", "5") in found["test_it[5]"]
    words = "fail: residency.uploads_per_step <= 4: 5 layers"
    assert ("memscope.limit", words) in found["test_it[5]"]
    (recording,) = kept_recordings(pytester)
    assert ("memscope.recording", str(recording)) in found["test_it[5]"]
    assert found["test_unmarked"] == []


@pytest.mark.parametrize("quiet", ["-q", "-qq"])
def test_quiet_is_quiet(run_tests: RunTests, quiet: str) -> None:
    result = run_tests(FOUR, quiet)
    result.stdout.no_fnmatch_line("*= memscope =*")
    result.stdout.fnmatch_lines(["memscope: residency.uploads_per_step = 5 layers, limit <= 4"])


def test_nothing_is_said_where_nothing_is_marked(run_tests: RunTests) -> None:
    result = run_tests("def test_it():\n    pass\n")
    result.stdout.no_fnmatch_line("*memscope*=*")


def test_long_table_is_cut(run_tests: RunTests) -> None:
    result = run_tests(
        "@pytest.mark.parametrize('number', range(25))\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 4')\n"
        "def test_it(number):\n    decode(5 if number == 24 else 4)\n"
    )
    result.stdout.fnmatch_lines(["  fail  test_it.py::test_it?24?  *", "  and 5 pass"])


def test_own_failure_is_in_the_artefact(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    run_tests(limited("driver.calls_per_step == 0", "assert 0"), "--memscope-output", "out")
    (test,) = read_results(pytester)["tests"]
    assert (test["outcome"], test["reason"]) == ("failed", "the test itself failed")


@pytest.mark.parametrize("options", ALONE_AND_SPREAD)
def test_rerun_replaces_what_came_before(
    run_tests: RunTests, pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    result = run_tests(IMPROVING, *RERUNS, *options, "--junit-xml=junit.xml")
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"], outcomes["rerun"]) == (1, 1)
    assert kept_recordings(pytester) == []
    properties = junit_properties(pytester.path / "junit.xml")["test_it"]
    uploads = [value for name, value in properties if name == "memscope.residency.uploads_per_step"]
    assert uploads == ["3"]
    result.stdout.fnmatch_lines(["  pass  test_it.py::test_it  *3 layers"])
    result.stdout.no_fnmatch_line("  fail *")


def test_rerun_is_one_test_of_the_artefact(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    run_tests(IMPROVING, *RERUNS, "--memscope-output", "out")
    (test,) = read_results(pytester)["tests"]
    assert (test["outcome"], test["limits"][0]["value"]) == ("passed", 3)
    assert [Path(path) for path in test["recordings"]] == list(
        (pytester.path / "out").glob("*.ms*")
    )


def test_tests_with_one_name_keep_recordings_of_their_own(
    run_tests: RunTests, pytester: pytest.Pytester
) -> None:
    limit = "@pytest.mark.memscope('residency.uploads_per_step <= 4')\n"
    run_tests(
        f"{limit}class TestA:\n    def test_it(self):\n        decode(2)\n"
        f"{limit}class TestB:\n    def test_it(self):\n        decode(3)\n",
        "--memscope-output",
        "out",
    )
    assert len(list((pytester.path / "out").glob("test_it-*.mscope"))) == 2


def test_unwritable_artefact_fails_the_session_not_the_tests(
    run_tests: RunTests, pytester: pytest.Pytester
) -> None:
    (pytester.path / "out/memscope-results.json").mkdir(parents=True)
    result = run_tests(limited("residency.uploads_per_step <= 4"), "--memscope-output", "out")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["error: *memscope-results.json is a folder*"])
