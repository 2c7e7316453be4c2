"""[tool.memscope] and files of limits: what is read, and what is said of what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from memscope.configuration import (
    Configuration,
    parse_tolerance,
    read_configuration,
    read_limits_file,
)
from memscope.errors import MemscopeError


def configure(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pyproject.toml"
    path.write_text(text)
    return path


def test_every_key_is_read(tmp_path: Path) -> None:
    lines = (
        'limits = ["a <= 1"]\nbaseline = "ci/b.toml"\ntolerance = "10 %"\nstrict = true\n'
        "repeat = 3\nwarmup = 1\n"
    )
    path = configure(tmp_path, f"[tool.memscope]\n{lines}")
    assert read_configuration(tmp_path) == Configuration(
        path, ("a <= 1",), tmp_path / "ci" / "b.toml", 0.1, True, 3, 1
    )


def test_the_nearest_file_that_has_the_section_counts(tmp_path: Path) -> None:
    path = configure(tmp_path, '[tool.memscope]\nlimits = ["a <= 1"]\n')
    configure(tmp_path / "b", '[project]\nname = "x"\n')
    (tmp_path / "b" / "c").mkdir()
    assert read_configuration(tmp_path / "b" / "c").path == path
    configure(tmp_path / "b" / "c", "[tool.memscope]\n")
    assert read_configuration(tmp_path / "b" / "c").limits == ()
    assert read_configuration(Path("/")) == Configuration()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('limts = ["a"]', "'limts' is not a key of [tool.memscope]. Did you mean limits?"),
        ("zzz = 1", "The keys are limits, baseline"),
        ("limits = 3", "limits is not a list of strings"),
        ("limits = [3]", "limits is not a list of strings"),
        ('limits = "a <= 1"', "limits is not a list of strings"),
        ("baseline = 3", "baseline is not a file name"),
        ('baseline = ""', "baseline is not a file name"),
        ('tolerance = "five"', "tolerance: 'five' is not a tolerance"),
        ("tolerance = -0.1", "is not a tolerance"),
        ("tolerance = inf", "is not a tolerance"),
        ("tolerance = true", "is not a tolerance"),
        ("strict = 1", "strict is neither true nor false"),
        ("repeat = 0", "repeat is not a whole number from 1"),
        ("repeat = true", "repeat is not a whole number from 1"),
        ("warmup = -1", "warmup is not a whole number from 0"),
        ("warmup = 1.5", "warmup is not a whole number from 0"),
    ],
)
def test_a_bad_key_is_named_with_its_file(tmp_path: Path, line: str, words: str) -> None:
    path = configure(tmp_path, f"[tool.memscope]\n{line}\n")
    with pytest.raises(MemscopeError) as caught:
        read_configuration(tmp_path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.next_step


@pytest.mark.parametrize("text", ["[tool.memscope", "a = [[[", "\udcff"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(MemscopeError, match=r"pyproject\.toml cannot be read"):
        read_configuration(tmp_path)


def test_a_section_that_is_no_table_is_wrong(tmp_path: Path) -> None:
    configure(tmp_path, "[tool]\nmemscope = 3\n")
    with pytest.raises(MemscopeError, match="not a table"):
        read_configuration(tmp_path)


@pytest.mark.parametrize(
    ("written", "share"), [("5%", 0.05), ("5 %", 0.05), ("0.05", 0.05), (0.05, 0.05), (0, 0)]
)
def test_tolerances(written: object, share: float) -> None:
    assert parse_tolerance(written) == pytest.approx(share)


def test_a_file_of_limits(tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    path.write_text('limits = [\n  "a <= 1",  # why\n  "b == 0",\n]\n')
    assert read_limits_file(path) == ("a <= 1", "b == 0")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no limits"),
        ("limits = 3", "not a list of strings"),
        ('limit = ["a"]', "'limit' is not a key. Did you mean limits?"),
        ("limits = [", "cannot be read"),
        (None, "does not exist"),
    ],
)
def test_a_bad_file_of_limits(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "limits.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(MemscopeError) as caught:
        read_limits_file(path)
    assert words in str(caught.value)


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(MemscopeError, match="too large for a file of limits"):
        read_limits_file(Path("/dev/zero"))


def test_reading_it_brings_neither_analysis_nor_numpy() -> None:
    import subprocess
    import sys

    code = (
        "import sys, memscope.configuration\n"
        "heavy = ('numpy', 'pyarrow', 'torch', 'memscope.analysis', 'memscope.cli')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
