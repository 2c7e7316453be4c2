"""`memscope check --write-baseline`: what becomes of the file, and of the exit code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from memscope.analysis.limits.baseline import read_baseline
from memscope.events import Kind
from tests.memscope.analysis.build import event, fact
from tests.memscope.analysis.sweeps import run_sweeps
from tests.memscope.cli.recordings import write_recording
from tests.memscope.cli.verb_run import Run

UPLOADS = "residency.uploads_per_step"


@pytest.fixture
def worse(tmp_path: Path) -> Path:
    """A recording of a smaller window: 9 uploads a step instead of 8."""
    return write_recording(tmp_path / "worse.mscope", run_sweeps("past", 12, 3))


@pytest.fixture
def baseline(memscope: Run, whole: Path, tmp_path: Path) -> Path:
    path = tmp_path / "baseline.toml"
    memscope("check", whole, "--write-baseline", path)
    return path


def uploads(path: Path) -> float:
    return read_baseline(path).sections["recording"][UPLOADS].value


def test_one_that_is_there_is_replaced_by_force_alone(
    memscope: Run, worse: Path, baseline: Path
) -> None:
    text = baseline.read_text()
    found = memscope("check", worse, "--write-baseline", baseline)
    assert (found.code, found.out) == (2, ""), "found before the work"
    assert f"{baseline} exists. Name another file, or overwrite it with --force." in found.err
    assert baseline.read_text() == text
    memscope("check", worse, "--write-baseline", baseline, "--force")
    assert uploads(baseline) == 9


def test_force_keeps_tolerances_and_sections_of_others(
    memscope: Run, worse: Path, baseline: Path
) -> None:
    text = baseline.read_text()
    wide = f'"{UPLOADS}" = {{ value = "8 layers", tolerance = "20 %" }}'
    text = text.replace(f'"{UPLOADS}" = "8 layers"', wide)
    baseline.write_text(f'{text}\n["tests/test_a.py::test"]\n"{UPLOADS}" = "3 layers"\n')
    memscope("check", worse, "--write-baseline", baseline, "--force")
    sections = read_baseline(baseline).sections
    assert (uploads(baseline), sections["recording"][UPLOADS].tolerance) == (9, 0.2)
    assert sections["tests/test_a.py::test"][UPLOADS].value == 3


@pytest.mark.parametrize(
    ("words", "code", "note"),
    [
        ((), 1, "baseline written, although a limit is broken"),
        (("--limit", f"{UPLOADS} <= 8"), 0, "baseline written\n"),
        (("--limit", f"{UPLOADS} <= 7"), 1, "baseline written, although a limit is broken"),
        (("--limit", "upload.link_ratio >= 0.9"), 1, "although a limit is broken"),
    ],
)
def test_verdicts_decide_the_exit_code_as_without_it(
    memscope: Run, whole: Path, tmp_path: Path, words: tuple[str, ...], code: int, note: str
) -> None:
    """A bare check breaks a default: past keeps 8 slabs at its peak."""
    path = tmp_path / "new.toml"
    plain = memscope("check", whole, *words)
    found = memscope("check", whole, *words, "--write-baseline", path)
    assert (found.code, found.out) == (plain.code, plain.out)
    assert found.code == code
    assert f"{path}: {note}" in found.err or note in found.err
    assert uploads(path) == 8


def test_a_write_that_fails_leaves_the_old_one(
    memscope: Run, worse: Path, baseline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = baseline.read_text()
    for name in ("write_text", "replace"):
        with monkeypatch.context() as patch:

            def fail(*_: Any, **__: Any) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr(Path if name == "write_text" else os, name, fail)
            found = memscope("check", worse, "--write-baseline", baseline, "--force")
        assert found.code == 2
        assert "No space left on device" in found.err
        assert baseline.read_text() == text
        assert list(baseline.parent.glob(".*")) == []


def test_it_appears_by_rename(memscope: Run, worse: Path, baseline: Path) -> None:
    """A reader who has the old one open keeps it."""
    text = baseline.read_text()
    with baseline.open() as old:
        memscope("check", worse, "--write-baseline", baseline, "--force")
        assert old.read() == text
    assert baseline.read_text() != text


@pytest.mark.parametrize(
    "text", ["", "[project]\nname = 'x'\n", "no = toml = here", "[memscope]\nkind = 3"]
)
def test_what_is_no_baseline_is_not_replaced_by_one(
    memscope: Run, whole: Path, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "other.toml"
    path.write_text(text)
    found = memscope("check", whole, "--write-baseline", path, "--force")
    assert (found.code, path.read_text()) == (2, text)
    assert "Name another file, or delete this one first." in found.err
    assert found.err.count("\n") == 1


@pytest.mark.parametrize("name", [".", "/dev/null", "none/b.toml"])
def test_a_place_that_takes_no_baseline(memscope: Run, whole: Path, name: str) -> None:
    found = memscope("check", whole, "--write-baseline", name, "--force")
    assert found.code == 2
    assert found.err.count("memscope: ") == 1


def write_program(path: Path, *sizes: int) -> Path:
    """A program without a device of which samples of the host are recorded."""
    rows = [
        event(Kind.SAMPLE, at, name="my.used_bytes", bytes=size << 20)
        for at, size in enumerate(sizes)
    ]
    return write_recording(path, [fact("run.kind", "q8-decode"), *rows])


def test_a_reading_that_a_limit_names_is_kept_and_compared(memscope: Run, tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    usual = write_program(tmp_path / "usual.mscope", 100, 60)
    more = write_program(tmp_path / "more.mscope", 104, 60)
    most = write_program(tmp_path / "most.mscope", 60, 106)
    found = memscope(
        "check", usual, "--limit", "my.used_bytes.peak <= 200 MiB", "--write-baseline", path
    )
    assert (found.code, "holds no memory metric" in found.err) == (0, False)
    words = ("--baseline", path, "--tolerance", "5%")
    assert [memscope("check", each, *words).code for each in (usual, more, most)] == [0, 0, 1]


def test_a_program_without_a_device_is_held_to_its_host_memory(
    memscope: Run, tmp_path: Path
) -> None:
    usual, more = (
        write_recording(
            tmp_path / f"{size}.mscope",
            [event(Kind.SAMPLE, 1, name="host.rss_bytes", bytes=size << 20)],
        )
        for size in (400, 430)
    )
    path = tmp_path / "b.toml"
    assert memscope("check", usual, "--write-baseline", path).err.count("\n") == 1
    assert '"host.peak_bytes" = "419430400 bytes"  # 400 MiB' in path.read_text()
    assert memscope("check", usual, "--baseline", path).code == 0
    assert memscope("check", more, "--baseline", path).code == 1
    assert "  host.peak_bytes  400 MiB" in memscope("summary", usual).out
    limit = "diff.{}peak_bytes <= 1 MiB"
    assert memscope("diff", usual, more, "--limit", limit.format("host.")).code == 1
    assert memscope("diff", usual, more, "--limit", limit.format("")).code == 2


def test_one_without_memory_says_so(memscope: Run, tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    program = write_program(tmp_path / "usual.mscope", 100)
    for words in (("--write-baseline", path), ("--baseline", path)):
        found = memscope("check", program, *words)
        assert found.code == 0
        assert found.err.count(f"memscope: {path} holds no memory metric") == 1


def test_help_says_what_it_does(memscope: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        memscope("check", "--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "Verdicts and exit code stay the same; FILE is written even if a limit is broken" in text
    assert "tolerances and other sections stay" in text


def test_what_is_no_longer_in_it_is_named_with_why(
    memscope: Run, whole: Path, tmp_path: Path
) -> None:
    path = tmp_path / "b.toml"
    reading_name, ratio = "my.used_bytes.peak", "my.used_bytes.end / my.used_bytes.peak"
    limits = ["--limit", f"{reading_name} <= 1 GiB", "--limit", f"{ratio} <= 1"]
    program = write_program(tmp_path / "usual.mscope", 100, 60)
    memscope("check", program, *limits, "--write-baseline", path)
    same = memscope("check", program, *limits, "--write-baseline", path, "--force")
    assert "no longer in it" not in same.err
    found = memscope("check", program, *limits[:2], "--write-baseline", path, "--force")
    lost = f"b.toml: baseline written; no longer in it: {ratio} (no limit names it)\n"
    assert lost in found.err
    found = memscope("check", whole, *limits[:2], "--write-baseline", path, "--force")
    assert f"no longer in it: {reading_name} (not measured)" in found.err
    assert reading_name not in read_baseline(path).sections["recording"]


def test_of_several_processes_each_names_its_own(
    memscope: Run, whole: Path, worse: Path, tmp_path: Path
) -> None:
    path = tmp_path / "b.toml"
    write = ("check", whole, worse, "--write-baseline", path)
    memscope(*write)
    text = path.read_text()
    extra = '"my.own.peak" = { value = "3", better = "lower" }'
    path.write_text(text.replace('["recording 2"]\n', f'["recording 2"]\n{extra}\n'))
    found = memscope(*write, "--force")
    assert "no longer in it: recording 2: my.own.peak (no limit names it)" in found.err


def test_one_file_for_two_outputs_is_wrong_use(memscope: Run, worse: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "out")
    words = ["--junit", tmp_path / "out", "--write-baseline", tmp_path / "link"]
    found = memscope("check", worse, *words)
    assert (found.code, found.out) == (2, "")
    assert "--junit and --write-baseline name the same file. Name two files." in found.err
    assert not (tmp_path / "out").exists()
