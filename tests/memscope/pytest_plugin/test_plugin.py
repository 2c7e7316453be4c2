"""The marker, from the outside: each test runs pytest on a small file of marked tests."""

from __future__ import annotations

import pytest

from memscope.analysis.timeline.read import read_timeline
from memscope.reader.recording import open_recording
from tests.memscope.pytest_plugin.program import PROGRAM, RunTests, kept_recordings, limited


@pytest.mark.parametrize(
    ("limit", "outcome"),
    [
        ("residency.uploads_per_step <= 5", "passed"),
        ("residency.uploads_per_step <= 4", "passed"),
        ("residency.uploads_per_step <= 3", "failed"),
        ("residency.uploads_per_step < 4", "failed"),
        ("driver.calls_per_step == 0", "passed"),
        ("driver.calls_per_step", "passed"),
    ],
)
def test_limit_decides(run_tests: RunTests, limit: str, outcome: str) -> None:
    run_tests(limited(limit)).assert_outcomes(**{outcome: 1})


def test_failure_names_limit_actual_and_recording(
    run_tests: RunTests, pytester: pytest.Pytester
) -> None:
    result = run_tests(limited("residency.uploads_per_step <= 3"))
    (recording,) = kept_recordings(pytester)
    result.stdout.fnmatch_lines(
        [
            "memscope: residency.uploads_per_step = 4 layers, limit <= 3",
            "  Keep more layers*",
            "memory at the peak: unknown (no device is recorded)",
            f"memscope: recording kept at {recording}",
        ],
        consecutive=True,
    )
    assert result.ret == 1


def test_kept_recording_says_what_failed(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    run_tests(limited("residency.uploads_per_step <= 3"))
    with open_recording(kept_recordings(pytester)[0]) as recording:
        timeline = read_timeline(recording)
        assert str(recording.state).startswith("complete")
    assert timeline.facts["test"] == {"id": "test_it.py::test_it", "run": 1}
    assert timeline.counts["upload"] == 16


def test_broken_default_gives_advice(run_tests: RunTests) -> None:
    result = run_tests(limited("driver.calls_per_step", "decode(calls=2)"))
    result.stdout.fnmatch_lines(
        ["memscope: driver.calls_per_step = 2 calls, default == 0", "  Reuse buffers*"]
    )


def test_each_broken_limit_has_its_line(run_tests: RunTests) -> None:
    result = run_tests(
        "@pytest.mark.memscope('residency.uploads_per_step <= 3', 'driver.calls_per_step == 0')\n"
        "def test_it():\n    decode(calls=2)\n"
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["memscope: residency.uploads_per_step = 4 *", "memscope: driver.calls_per_step = 2 *"]
    )


def test_passing_test_leaves_no_recording(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    run_tests(limited("residency.uploads_per_step <= 4")).assert_outcomes(passed=1)
    assert list((pytester.path / "kept").iterdir()) == []


def test_own_failure_is_kept(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    body = "decode()\n    assert 1 == 2, 'mine'"
    result = run_tests(limited("residency.uploads_per_step <= 3", body))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: mine*"])
    (recording,) = kept_recordings(pytester)
    result.stdout.fnmatch_lines([f"memscope: recording kept at {recording}"])
    result.stdout.no_fnmatch_line("*limit <= 3*")


@pytest.mark.parametrize(
    ("limit", "body", "reason"),
    [
        (
            "residency.uploads_per_step <= 4",
            "pass",
            "not applicable, no weight upload is recorded*",
        ),
        ("memory.peak_bytes <= 2 GiB", "decode()", "not measured, no device is recorded"),
        ("upload.link_ratio", "decode()", "not measured, *"),
    ],
)
def test_unmeasured_limit_skips(run_tests: RunTests, limit: str, body: str, reason: str) -> None:
    result = run_tests(limited(limit, body), "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        [f"SKIPPED * test_it.py:*: memscope: {limit.split()[0]}*: {reason}"]
    )


def test_broken_limit_weighs_more_than_unmeasured(run_tests: RunTests) -> None:
    result = run_tests(
        "@pytest.mark.memscope('memory.peak_bytes <= 1 GiB', 'residency.uploads_per_step <= 3')\n"
        "def test_it():\n    decode()\n"
    )
    result.assert_outcomes(failed=1)


def test_inapplicable_limit_beside_a_kept_one_passes(run_tests: RunTests) -> None:
    result = run_tests(
        "@pytest.mark.memscope('pool.hit_rate >= 1', 'residency.uploads_per_step <= 4')\n"
        "def test_it():\n    decode()\n"
    )
    result.assert_outcomes(passed=1)


def test_skip_and_xfail_stay_what_they_are(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    result = run_tests(
        limited("residency.uploads_per_step <= 3", "pytest.skip('mine')")
        + "@pytest.mark.xfail(strict=True)\n"
        + limited("residency.uploads_per_step <= 3").replace("test_it", "test_broken")
        + "@pytest.mark.skip\n"
        + limited("no.metric <= 3").replace("test_it", "test_never")
    )
    result.assert_outcomes(skipped=2, xfailed=1)


def test_fixtures_are_not_recorded(run_tests: RunTests) -> None:
    result = run_tests(
        "@pytest.fixture\n"
        "def before():\n"
        "    assert memscope.active_recorder() is None\n"
        "    yield\n"
        "    assert memscope.active_recorder() is None\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 4')\n"
        "def test_it(before):\n    decode()\n"
    )
    result.assert_outcomes(passed=1)


def test_unittest_case_is_judged(run_tests: RunTests) -> None:
    result = run_tests(
        "import unittest\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 3')\n"
        "class TestIt(unittest.TestCase):\n"
        "    def test_over(self):\n        decode()\n"
        "    def test_own(self):\n        self.assertEqual(1, 2)\n"
        "    def test_fine(self):\n        decode(uploads=3)\n"
    )
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        ["memscope: residency.uploads_per_step = 4 *", "*AssertionError: 1 != 2"]
    )


@pytest.mark.usefixtures("installed_plugins")
def test_plugin_can_be_left_out(pytester: pytest.Pytester) -> None:
    body = limited("residency.uploads_per_step <= 3", "assert memscope.active_recorder() is None")
    pytester.makepyfile(test_it=PROGRAM + body)
    result = pytester.runpytest_subprocess("-p", "no:memscope")
    result.assert_outcomes(passed=1, warnings=1)


def test_marker_is_listed(run_tests: RunTests) -> None:
    result = run_tests("", "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.memscope(?limits, repeat=1*): record the *"])


def test_short_body_has_readings(run_tests: RunTests) -> None:
    body = limited("host.rss_bytes.peak >= 1 KiB", "pass")
    run_tests(body).assert_outcomes(passed=1)


def test_own_fixtures_count_on_demand(run_tests: RunTests) -> None:
    result = run_tests(
        "@pytest.fixture(scope='module')\n"
        "def wide():\n    assert memscope.active_recorder() is None\n"
        "@pytest.fixture\n"
        "def own(wide):\n"
        "    decode(3)\n"
        "    yield\n"
        "    assert memscope.active_recorder() is None\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 3', fixtures=True)\n"
        "def test_within(own):\n    pass\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 2', fixtures=True)\n"
        "def test_over(own):\n    pass\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 2', fixtures=True)\n"
        "def test_without():\n    decode(2)\n"
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["FAILED *::test_over *"])


def test_failing_fixture_that_counts_keeps_its_recording(
    run_tests: RunTests, pytester: pytest.Pytester
) -> None:
    result = run_tests(
        "@pytest.fixture\n"
        "def own():\n    decode()\n    raise ValueError('mine')\n"
        "@pytest.mark.memscope('residency.uploads_per_step <= 3', fixtures=True)\n"
        "def test_it(own):\n    pass\n"
        "def test_after():\n    assert memscope.active_recorder() is None\n"
    )
    result.assert_outcomes(passed=1, errors=1)
    (recording,) = kept_recordings(pytester)
    result.stdout.fnmatch_lines(["*ValueError: mine*", f"memscope: recording kept at {recording}"])
