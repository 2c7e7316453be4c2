"""Tests against a committed baseline."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.memscope.pytest_plugin.program import RunTests, limited

WRITE = ("--memscope-write-baseline", "base.toml")
COMPARE = ("--memscope-baseline", "base.toml")
METRIC = "residency.uploads_per_step"


def marked(uploads: int, arguments: str = "baseline=True", name: str = "test_it") -> str:
    return f"@pytest.mark.memscope({arguments})\ndef {name}():\n    decode({uploads})\n"


@pytest.fixture
def baseline(run_tests: RunTests, pytester: pytest.Pytester) -> Path:
    """A baseline in which test_it uploads 4 layers a step."""
    result = run_tests(marked(4), *WRITE)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"baseline: 1 test written to {pytester.path}/base.toml"])
    return pytester.path / "base.toml"


def test_baseline_is_for_people(baseline: Path) -> None:
    text = baseline.read_text()
    assert '["test_it.py::test_it"]' in text
    assert '"residency.uploads_per_step" = "4 layers"' in text


def test_a_reading_of_the_mark_is_written(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    run_tests(limited("host.rss_bytes.peak <= 1 TiB"), *WRITE).assert_outcomes(passed=1)
    text = (pytester.path / "base.toml").read_text()
    assert '"host.rss_bytes.peak" = { value = ' in text
    assert "host.peak_bytes" not in text, "it tells more of the tests before than of this one"


def test_a_peak_of_the_whole_process_is_written_where_a_limit_names_it(
    run_tests: RunTests, pytester: pytest.Pytester
) -> None:
    limit = "@pytest.mark.memscope('host.peak_bytes <= 1 TiB')\n"
    body = f"{limit}def test_it():\n    pass\n\n\n{marked(4, name='test_other')}"
    run_tests(body, *WRITE).assert_outcomes(passed=2)
    sections = tomllib.loads((pytester.path / "base.toml").read_text())
    assert "host.peak_bytes" in sections["test_it.py::test_it"]
    assert "host.peak_bytes" not in sections["test_it.py::test_other"]
    run_tests(body, *COMPARE).assert_outcomes(passed=2)
    low = (
        (pytester.path / "base.toml")
        .read_text()
        .replace(str(sections["test_it.py::test_it"]["host.peak_bytes"]), "4096 bytes")
    )
    (pytester.path / "base.toml").write_text(low)
    run_tests(body, *COMPARE).assert_outcomes(passed=1, failed=1)


@pytest.mark.usefixtures("baseline")
@pytest.mark.parametrize(("uploads", "outcome"), [(3, "passed"), (4, "passed"), (5, "failed")])
def test_worse_than_the_baseline_fails(run_tests: RunTests, uploads: int, outcome: str) -> None:
    run_tests(marked(uploads), *COMPARE).assert_outcomes(**{outcome: 1})


@pytest.mark.usefixtures("baseline")
def test_failure_names_the_baseline(run_tests: RunTests) -> None:
    result = run_tests(marked(5), *COMPARE)
    result.stdout.fnmatch_lines([f"memscope: {METRIC} = 5 layers, baseline 4 layers + 5 %*"])


@pytest.mark.usefixtures("baseline")
@pytest.mark.parametrize(
    ("arguments", "options", "configured", "outcome"),
    [
        ("baseline=True", ("--memscope-tolerance", "30%"), "", "passed"),
        ("baseline=True, tolerance='30%'", (), "", "passed"),
        ("baseline=True, tolerance=0.3", (), "", "passed"),
        ("baseline=True", (), "tolerance = 0.3", "passed"),
        ("baseline=True", ("--memscope-tolerance", "1%"), "tolerance = 0.3", "failed"),
        ("baseline=True, tolerance='1%'", ("--memscope-tolerance", "30%"), "", "failed"),
    ],
)
def test_tolerance_decides(
    run_tests: RunTests,
    pytester: pytest.Pytester,
    arguments: str,
    options: tuple[str, ...],
    configured: str,
    outcome: str,
) -> None:
    pytester.makepyprojecttoml(f"[tool.memscope]\n{configured}\n")
    run_tests(marked(5, arguments), *COMPARE, *options).assert_outcomes(**{outcome: 1})


@pytest.mark.usefixtures("baseline")
def test_pyproject_names_the_baseline(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml('[tool.memscope]\nbaseline = "base.toml"\n')
    run_tests(marked(5)).assert_outcomes(failed=1)


@pytest.mark.usefixtures("baseline")
def test_marked_tests_are_compared_unless_they_say_no(run_tests: RunTests) -> None:
    limit = f"'{METRIC} <= 8'"
    run_tests(marked(5, limit), *COMPARE).assert_outcomes(failed=1)
    run_tests(marked(5, f"{limit}, baseline=False"), *COMPARE).assert_outcomes(passed=1)
    unmarked = "def test_it():\n    assert memscope.active_recorder() is None\n"
    run_tests(unmarked, *COMPARE).assert_outcomes(passed=1)


@pytest.mark.usefixtures("baseline")
def test_absolute_limit_counts_beside_the_baseline(run_tests: RunTests) -> None:
    run_tests(marked(4, f"'{METRIC} <= 3', baseline=True"), *COMPARE).assert_outcomes(failed=1)


@pytest.mark.usefixtures("baseline")
def test_unknown_test_skips_only_where_it_must_be_known(run_tests: RunTests) -> None:
    result = run_tests(marked(4, name="test_new"), *COMPARE, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        ["SKIPPED *base.toml has no entry for test_it.py::test_new: write one *"]
    )
    body = marked(4, f"'{METRIC} <= 8'", name="test_new")
    run_tests(body, *COMPARE).assert_outcomes(passed=1)
    strict = run_tests(marked(4, name="test_new"), *COMPARE, "--memscope-strict")
    strict.assert_outcomes(failed=1)


def test_absent_file_of_pyproject_skips(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml('[tool.memscope]\nbaseline = "base.toml"\n')
    result = run_tests(marked(4), "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED *base.toml does not exist: write one with *"])


def test_damaged_file_is_an_error_of_tests_that_need_it(
    run_tests: RunTests, pytester: pytest.Pytester
) -> None:
    (pytester.path / "base.toml").write_text("nonsense")
    result = run_tests(marked(4) + "def test_other():\n    pass\n", *COMPARE)
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["memscope: *base.toml cannot be read *"])


def test_failed_tests_are_not_written(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    body = marked(4) + marked(5, f"'{METRIC} <= 3'", name="test_over")
    run_tests(body, *WRITE).assert_outcomes(passed=1, failed=1)
    text = (pytester.path / "base.toml").read_text()
    assert "test_it.py::test_it" in text
    assert "test_over" not in text


def test_nothing_to_write_is_said(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    result = run_tests("def test_it():\n    pass\n", *WRITE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["error: *base.toml was not written: no marked test passed."])
    assert not (pytester.path / "base.toml").exists()


@pytest.mark.usefixtures("baseline")
def test_writing_compares_nothing_and_keeps_other_tests(
    run_tests: RunTests, pytester: pytest.Pytester
) -> None:
    run_tests(marked(5, name="test_new"), *COMPARE, *WRITE).assert_outcomes(passed=1)
    run_tests(marked(6), *COMPARE, *WRITE).assert_outcomes(passed=1)
    text = (pytester.path / "base.toml").read_text()
    assert '"5 layers"' in text
    assert '"6 layers"' in text
    assert '"4 layers"' not in text


@pytest.mark.slow
def test_workers_write_one_baseline(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    body = "".join(marked(number, name=f"test_{number}") for number in range(2, 6))
    result = run_tests(body, *WRITE, "-p", "xdist", "-n2")
    result.assert_outcomes(passed=4)
    text = (pytester.path / "base.toml").read_text()
    assert all(f'"{number} layers"' in text for number in range(2, 6))


@pytest.mark.usefixtures("baseline")
def test_median_is_compared(run_tests: RunTests) -> None:
    body = (
        "UPLOADS = iter((8, 4, 3))\n"
        "@pytest.mark.memscope(baseline=True, repeat=3)\n"
        "def test_it():\n    decode(next(UPLOADS))\n"
    )
    run_tests(body, *COMPARE).assert_outcomes(passed=1)


READING = "host.rss_bytes.peak"


@pytest.mark.parametrize("options", [(), ("-q",), ("-qq",)])
def test_writing_anew_names_what_is_no_longer_in_it(
    run_tests: RunTests, pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    """Nothing goes without a word, nor with -q."""
    run_tests(marked(4, f"'{READING} <= 1 TiB'"), *WRITE).assert_outcomes(passed=1)
    result = run_tests(marked(4), *WRITE, *options)
    lost = f"removed from the baseline: test_it.py::test_it: {READING} (no limit names it)"
    result.stdout.fnmatch_lines([lost])
    if not options:
        anew = f"baseline: 1 test written to {pytester.path}/base.toml, 1 of them replaced"
        result.stdout.fnmatch_lines([anew])
    assert READING not in (pytester.path / "base.toml").read_text()


@pytest.mark.parametrize(
    ("name", "problem"), [("no/b.toml", "does not exist"), (".", "is a folder")]
)
def test_a_place_for_no_baseline_is_found_before_tests_run(
    run_tests: RunTests, name: str, problem: str
) -> None:
    result = run_tests(marked(4), "--memscope-write-baseline", name)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: memscope: *{problem}*"])
