"""`memscope explain` from files and pipes, as text and as JSON."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from memscope.analysis.diagnosis.explanation import Explanation, Share, ShareKind
from memscope.cli.text.explanation import BAR_CHARACTERS, bar, explanation_lines
from memscope.events import Kind
from tests.memscope.analysis.build import event
from tests.memscope.cli.recordings import write_recording
from tests.memscope.cli.verb_run import Run
from tests.paths import DATA

CASES = sorted((DATA / "oom").glob("*.txt"))
FRAGMENTED = DATA / "oom" / "01-huge-split-segment.txt"
KEYS = {"diagnosis", "why", "device", "requested_bytes", "total_bytes", "free_bytes"}
KEYS |= {"allocated_bytes", "reserved_bytes"}


class Pipe(io.TextIOWrapper):
    def isatty(self) -> bool:
        return False


def pipe_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    buffer = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", Pipe(buffer))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_json_has_the_keys_and_the_diagnosis_of_each_case(memscope: Run, path: Path) -> None:
    outcome = memscope("explain", path, "--json")
    found = json.loads(outcome.out)
    expected = json.loads(path.with_suffix(".json").read_text())
    assert outcome.code == 0
    assert found.keys() >= KEYS
    assert found["diagnosis"] == expected["diagnosis"]


def test_text_begins_with_a_paragraph_and_goes_on_with_bar_and_advice(memscope: Run) -> None:
    lines = memscope("explain", FRAGMENTED).out.splitlines()
    assert lines[0].startswith("Fragmentation: 10.84 GiB was requested on GPU 0 (23.65 GiB).")
    assert lines.index("") < lines.index("GPU 0  23.65 GiB") < lines.index("would not help")
    assert all(line == line.rstrip() and len(line) < 160 for line in lines)


def test_pipe_is_read(memscope: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe_in(monkeypatch, FRAGMENTED.read_bytes())
    assert memscope("explain", "-").out == memscope("explain", FRAGMENTED).out


def test_packed_log_is_unpacked(memscope: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(FRAGMENTED.read_bytes()))
    assert memscope("explain", path).out == memscope("explain", FRAGMENTED).out


def test_text_without_a_memory_error_quotes_the_last_error(memscope: Run) -> None:
    outcome = memscope("explain", DATA / "oom" / "12-not-an-oom.txt")
    assert outcome.code == 0
    assert "No out-of-memory error" in outcome.out
    assert "mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)" in outcome.out


def test_killed_program_is_sent_to_the_hosts_memory(memscope: Run, tmp_path: Path) -> None:
    path = tmp_path / "pod.log"
    path.write_text("step 100 loss 2.1\nKilled\n")
    assert "host memory ran out" in memscope("explain", path).out
    path.write_text("step 100 loss 2.1\nValueError: no data\n")
    assert "host memory ran out" not in memscope("explain", path).out


def test_recording_is_explained_from_file_and_pipe(
    memscope: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"scope": "engine", "free": 5, "allocated": 95, "reserved": 95, "total": 100}
    row = event(Kind.OOM, 5, step=3, bytes=50, data=data)
    path = write_recording(tmp_path / "run.mscope", [row])
    found = json.loads(memscope("explain", path, "--json").out)
    assert (found["source"], found["diagnosis"]) == ("recording", "shortage")
    assert "step 3" in memscope("explain", path).out
    pipe_in(monkeypatch, path.read_bytes())
    assert json.loads(memscope("explain", "-", "--json").out) == found


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (bytes(range(32)) * 40, "not text"),
        (b"\x1f\x8b" + b"nonsense" * 9, "damaged gzip"),
        (gzip.compress(FRAGMENTED.read_bytes() * 999)[:-20], "damaged gzip"),
        (b"\xff\xff\xff\xffnonsense", "recording"),
        (b"\x80\x04nonsense", ""),
    ],
    ids=["nothing", "blank", "binary", "no gzip", "cut gzip", "no recording", "no pickle"],
)
def test_unreadable_input_is_one_sentence_and_exit_2(
    memscope: Run, tmp_path: Path, data: bytes, words: str
) -> None:
    path = tmp_path / "input"
    path.write_bytes(data)
    outcome = memscope("explain", path)
    assert outcome.code == 2
    assert outcome.out == ""
    assert words in outcome.err
    assert outcome.err.count("\n") == 1


def test_missing_file_and_folder_are_one_sentence(memscope: Run, tmp_path: Path) -> None:
    for name in ("missing.txt", tmp_path):
        outcome = memscope("explain", name)
        assert outcome.code == 2
        assert outcome.err.count("\n") == 1


def test_control_characters_of_a_log_never_reach_the_terminal(
    memscope: Run, tmp_path: Path
) -> None:
    path = tmp_path / "log.txt"
    path.write_text("KeyError: '\x1b[2J\x1b]0;owned\x07\u202eevil\x9b31m [red]' \n")
    outcome = memscope("explain", path)
    assert "KeyError" in outcome.out
    assert not set(outcome.out) & set("\x1b\x07\x9b\u202e")
    assert "\x1b" not in json.loads(memscope("explain", path, "--json").out)["notes"][0]


def test_bar_keeps_every_part_and_its_length() -> None:
    shares = (
        Share("a", 10**12, ShareKind.ALLOCATED),
        Share("b", 1, ShareKind.CACHED),
        Share("c", 10**11, ShareKind.FREE),
    )
    drawn = bar(shares)
    assert len(drawn) == BAR_CHARACTERS
    assert drawn.count("=") == 1
    assert drawn.count("#") > 9 * drawn.count(".")
    assert bar(()) == ""


def test_shares_beyond_the_card_are_named() -> None:
    explanation = Explanation(
        "oversubscribed",
        "why",
        sizes_bytes={"total": 2**34},
        shares=(Share("torch", 2**35, ShareKind.ALLOCATED),),
    )
    assert "card  16.00 GiB, and 32.00 GiB is in use" in explanation_lines(explanation)


def test_explaining_a_log_imports_nothing_heavy() -> None:
    code = (
        "import sys; from memscope.cli import main; "
        f"main(['explain', {str(FRAGMENTED)!r}, '--json']); "
        "print(*(name for name in ('torch', 'numpy', 'pyarrow', 'rich') if name in sys.modules),"
        " file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stderr.strip() == ""
