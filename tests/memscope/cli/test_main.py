"""The command line itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memscope.cli.text.columns import align
from memscope.cli.verbs import VERBS
from tests.memscope.cli.verb_run import Run
from tests.paths import ROOT

HEAVY = ("numpy", "pyarrow", "torch", "textual", "plotly")


def run_python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize(
    "code",
    [
        "import memscope",
        "from memscope.cli import main; main(['--help'])",
        "from memscope.cli import main; main(['--version'])",
        *(
            f"from memscope.cli import main\ntry: main(['{verb}', '--help'])\nexcept SystemExit: 0"
            for verb in ("summary", "check", "export", "live", "report", "decode")
        ),
    ],
)
def test_help_loads_nothing_heavy(code: str) -> None:
    show = f"import sys; print('loaded', *(name for name in {HEAVY} if name in sys.modules))"
    out = run_python(f"{code}\n{show}")
    assert out.splitlines()[-1] == "loaded"


def test_help_names_every_verb(memscope: Run) -> None:
    found = memscope("--help")
    assert found.code == 0
    assert all(f"\n  {name} " in found.out for name in VERBS)


def test_version_names_distribution_and_place(memscope: Run) -> None:
    found = memscope("--version")
    assert found.out.startswith("memscope-torch ")
    assert str(ROOT) in found.out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["sumary"], "Did you mean summary?"),
        (["zzz"], "`memscope --help` lists all verbs."),
        (["summary", "x", "--bogus"], "--bogus"),
        (["summary", "none.mscope"], "does not exist"),
        (["summary", "."], "holds no recording"),
    ],
)
def test_wrong_use_is_a_sentence_and_exit_2(memscope: Run, argv: list[str], words: str) -> None:
    found = memscope(*argv)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("memscope: ")
    assert found.err.count("\n") == 1
    assert words in found.err


def test_what_is_no_recording(memscope: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<html>" * 100)
    for argv in (["summary", path], ["check", path], ["export", path, "--to", "arrow", "-o", "x"]):
        assert memscope(*argv).code == 2


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            PermissionError(13, "Permission denied", "a.mscope"),
            "Permission denied. Check",
        ),
        (OSError(5, "Input/output error"), "the output: Input/output error. Check that the disk"),
    ],
)
def test_what_the_system_refuses_has_a_next_step(
    memscope: Run, whole: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("memscope.cli.summary.read_run", refuse)
    found = memscope("summary", whole)
    assert found.code == 2
    assert words in found.err


def test_an_interrupt_is_130(memscope: Run, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("memscope.cli.summary.read_run", interrupt)
    assert memscope("summary", whole).code == 130


@pytest.mark.parametrize("out", ["| true", "> /dev/full"])
def test_a_reader_that_is_gone_gets_no_traceback(whole: Path, out: str) -> None:
    command = f"set -o pipefail; {sys.executable} -m memscope summary {whole} --json {out}"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in run.stderr
    assert run.returncode in ((0, 141) if out == "| true" else (2,))


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_closed_stream_changes_nothing_else(whole: Path, closed: str) -> None:
    copy = whole.parent / "copy.arrow"
    command = f"{sys.executable} -m memscope export {whole} --to arrow -o {copy} {closed}"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (0, "")
    assert "Traceback" not in run.stderr
    assert copy.read_bytes()[:4] == b"\xff" * 4


def test_a_narrow_encoding_costs_characters_alone(whole: Path) -> None:
    command = [sys.executable, "-m", "memscope", "summary", str(whole)]
    env = {"PYTHONIOENCODING": "ascii", "PATH": ""}
    run = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")


def test_align() -> None:
    assert align([("a", "bb"), ("ccc", "d")]) == ["  a    bb", "  ccc  d"]
    assert align([]) == []
