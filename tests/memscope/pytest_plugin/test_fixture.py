"""The fixture ``memscope_measurement``: metrics of the body to assert on."""

from __future__ import annotations

import pytest

from tests.memscope.pytest_plugin.program import RunTests, kept_recordings

USE = "def test_it(memscope_measurement):\n    decode()\n    assert memscope_measurement"


@pytest.mark.parametrize(
    ("assertion", "outcome"),
    [
        ("['residency.uploads_per_step'] == 4", "passed"),
        ("['residency.uploads_per_step'] == 3", "failed"),
        ("['host.rss_bytes.peak / host.rss_bytes.min'] >= 1", "passed"),
        ("['torch.reserved_bytes.peak / torch.allocated_bytes.peak'] < 2", "skipped"),
        ("['memory.peak_bytes'] < 2**30", "skipped"),
        (".metric('memory.peak_bytes').value is None", "passed"),
        (".metric('memory.peak_bytes').reason == 'no device is recorded'", "passed"),
        ("['no.metric'] < 1", "failed"),
    ],
)
def test_metrics_can_be_asserted_on(run_tests: RunTests, assertion: str, outcome: str) -> None:
    run_tests(USE + assertion + "\n").assert_outcomes(**{outcome: 1})


def test_unmeasured_metric_says_why(run_tests: RunTests) -> None:
    body = USE + "['memory.peak_bytes'] < 2**30\n"
    reason = "memscope: memory.peak_bytes: not measured, no device is recorded"
    run_tests(body, "-rs").stdout.fnmatch_lines([f"SKIPPED *{reason}"])
    strict = run_tests(body, "--memscope-strict")
    strict.assert_outcomes(failed=1)
    strict.stdout.fnmatch_lines([reason])


def test_unknown_metric_says_what_was_meant(run_tests: RunTests) -> None:
    result = run_tests(USE + "['residency.upload_per_step'] == 4\n")
    result.stdout.fnmatch_lines(["*There is no metric 'residency.upload_per_step'. Did you mean *"])


def test_metrics_are_of_what_ran_until_then(run_tests: RunTests) -> None:
    result = run_tests(
        "def test_it(memscope_measurement):\n"
        "    metric = memscope_measurement.metric\n"
        "    assert metric('residency.uploads_per_step').value is None\n"
        "    decode(3)\n"
        "    assert metric('residency.uploads_per_step').value == 3\n"
        "    decode(8)\n"
        "    assert metric('residency.uploads_per_step').value > 3\n"
    )
    result.assert_outcomes(passed=1)


def test_passing_test_leaves_no_recording(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    run_tests(USE + ".path.exists()\n").assert_outcomes(passed=1)
    assert kept_recordings(pytester) == []


def test_failing_test_keeps_its_recording(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    result = run_tests(USE + "['residency.uploads_per_step'] == 3\n")
    (recording,) = kept_recordings(pytester)
    result.stdout.fnmatch_lines([f"memscope: recording kept at {recording}"])


def test_marker_and_fixture_share_the_recording(run_tests: RunTests) -> None:
    result = run_tests(
        "@pytest.mark.memscope('residency.uploads_per_step <= 3')\n"
        + USE
        + "['residency.uploads_per_step'] == 4\n"
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["memscope: residency.uploads_per_step = 4 layers, limit <= 3"])


def test_fixture_of_a_fixture_measures_the_body(run_tests: RunTests) -> None:
    result = run_tests(
        "@pytest.fixture\n"
        "def measured(memscope_measurement):\n"
        "    assert memscope_measurement.metric('residency.uploads_per_step').value is None\n"
        "    return memscope_measurement\n"
        "def test_it(measured):\n"
        "    decode()\n"
        "    assert measured['residency.uploads_per_step'] == 4\n"
    )
    result.assert_outcomes(passed=1)


def test_late_request_says_what_to_do(run_tests: RunTests) -> None:
    result = run_tests(
        "def test_it(request):\n    request.getfixturevalue('memscope_measurement')\n"
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Make memscope_measurement an argument of the test *"])
