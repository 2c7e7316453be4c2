"""Each option and each key of pyproject.toml changes what comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.memscope.pytest_plugin.program import RunTests, kept_recordings, limited

UNMARKED = "def test_it():\n    decode()\n"
OVER = "residency.uploads_per_step <= 3"
FINE = "residency.uploads_per_step <= 4"


@pytest.fixture
def configure(pytester: pytest.Pytester) -> Path:
    return pytester.path / "pyproject.toml"


def write(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["[tool.memscope]", *lines]) + "\n")


def test_command_line_limits_every_test(run_tests: RunTests) -> None:
    result = run_tests(UNMARKED, "--memscope-limit", OVER)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["memscope: residency.uploads_per_step = 4 layers, limit <= 3"])


def test_file_limits_every_test(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    (pytester.path / "limits.toml").write_text(f'limits = ["{OVER}"]\n')
    run_tests(UNMARKED, "--memscope-limits", "limits.toml").assert_outcomes(failed=1)


def test_pyproject_limits_every_test(run_tests: RunTests, configure: Path) -> None:
    write(configure, f'limits = ["{OVER}"]')
    run_tests(UNMARKED).assert_outcomes(failed=1)


@pytest.mark.parametrize(
    ("marker", "command_line", "file", "pyproject", "outcome"),
    [
        (None, None, None, OVER, "failed"),
        (None, None, FINE, OVER, "passed"),
        (None, None, OVER, FINE, "failed"),
        (None, FINE, OVER, OVER, "passed"),
        (None, OVER, FINE, FINE, "failed"),
        (FINE, OVER, OVER, OVER, "passed"),
        (OVER, FINE, FINE, FINE, "failed"),
        ("driver.calls_per_step == 0", OVER, FINE, FINE, "failed"),
    ],
)
def test_nearest_source_decides_for_a_metric(
    run_tests: RunTests,
    configure: Path,
    marker: str | None,
    command_line: str | None,
    file: str | None,
    pyproject: str | None,
    outcome: str,
) -> None:
    options = []
    if pyproject:
        write(configure, f'limits = ["{pyproject}"]')
    if file:
        configure.with_name("limits.toml").write_text(f'limits = ["{file}"]\n')
        options += ["--memscope-limits", "limits.toml"]
    if command_line:
        options += ["--memscope-limit", command_line]
    run_tests(limited(marker) if marker else UNMARKED, *options).assert_outcomes(**{outcome: 1})


def test_limit_of_every_test_skips_none(run_tests: RunTests) -> None:
    result = run_tests(
        UNMARKED + "def test_other():\n    pass\n", "--memscope-limit", "memory.peak_bytes <= 1 GiB"
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*every test: memory.peak_bytes <= 1 GiB: 2 not measured"])


def test_bare_marker_takes_limits_of_every_test_as_its_own(run_tests: RunTests) -> None:
    result = run_tests(
        "@pytest.mark.memscope\ndef test_it():\n    decode()\n",
        "--memscope-limit",
        "memory.peak_bytes <= 1 GiB",
    )
    result.assert_outcomes(skipped=1)


def test_strict_fails_what_was_not_measured(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    body = limited("memory.peak_bytes <= 1 GiB")
    run_tests(body).assert_outcomes(skipped=1)
    result = run_tests(body, "--memscope-strict")
    result.assert_outcomes(failed=1)
    (recording,) = kept_recordings(pytester)
    result.stdout.fnmatch_lines(
        [
            "memscope: memory.peak_bytes <= 1 GiB: not measured, no device is recorded",
            f"memscope: recording kept at {recording}",
        ]
    )


def test_pyproject_is_strict(run_tests: RunTests, configure: Path) -> None:
    write(configure, "strict = true")
    run_tests(limited("memory.peak_bytes <= 1 GiB")).assert_outcomes(failed=1)


def test_strict_fails_a_session_that_never_measured(run_tests: RunTests) -> None:
    limit = ("--memscope-limit", "memory.peak_bytes <= 1 GiB")
    assert run_tests(UNMARKED, *limit).ret == 0
    result = run_tests(UNMARKED, *limit, "--memscope-strict")
    result.assert_outcomes(passed=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["error: memory.peak_bytes <= 1 GiB: no test measured it."])


def test_output_keeps_all_recordings(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    run_tests(limited(FINE), "--memscope-output", "out/deep").assert_outcomes(passed=1)
    assert kept_recordings(pytester) == []
    (recording,) = (pytester.path / "out/deep").glob("*.mscope")
    results = json.loads((pytester.path / "out/deep/memscope-results.json").read_text())
    assert [test["recordings"] for test in results["tests"]] == [[str(recording)]]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--memscope-limit", "memory.peak_bytes <= 1 XB"), "*not in 'XB'*"),
        (("--memscope-limit", "no.metric <= 1"), "*There is no metric 'no.metric'*"),
        (("--memscope-limits", "absent.toml"), "*absent.toml does not exist*"),
        (("--memscope-baseline", "absent.toml"), "*absent.toml does not exist*"),
        (("--memscope-tolerance", "much"), "*'much' is not a tolerance*"),
        (("--memscope-output", "test_it.py"), "*test_it.py cannot be created*"),
    ],
)
def test_bad_option_is_a_usage_error(
    run_tests: RunTests, options: tuple[str, str], problem: str
) -> None:
    result = run_tests(UNMARKED, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: memscope: {problem}"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_bad_limit_in_pyproject_leaves_the_tests_alone(
    run_tests: RunTests, configure: Path, quiet: tuple[str, ...]
) -> None:
    write(configure, "limits = [", '  "memory.peak_bytes <= 1 XB",', f'  "{FINE}",', "]")
    result = run_tests(UNMARKED, *quiet)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"error: {configure}:3: memory.peak_bytes is *not in 'XB'*"])


def test_unknown_key_in_pyproject_leaves_the_tests_alone(
    run_tests: RunTests, configure: Path
) -> None:
    write(configure, "limit = []")
    result = run_tests("def test_it():\n    pass\n")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"error: {configure}: 'limit' is not a key*Did you mean limits?"])
