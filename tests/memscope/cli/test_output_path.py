"""Where a verb's files go."""

from __future__ import annotations

from pathlib import Path

import pytest

from memscope.cli.output_path import new_folder
from memscope.errors import MemscopeError
from tests.memscope.cli.verb_run import Run


def test_each_folder_takes_the_next_number(tmp_path: Path) -> None:
    (tmp_path / "007").mkdir()
    (tmp_path / "²").mkdir()  # a digit that is no number
    assert [new_folder(tmp_path).name for _ in range(2)] == ["008", "009"]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MemscopeError, match="MEMSCOPE_DIR"):
        new_folder(tmp_path / "file" / "memscope-demo")


@pytest.mark.parametrize(
    "words",
    [
        ("check", "--write-baseline"),
        ("check", "--junit"),
        ("export", "--to", "arrow", "-o"),
        ("export", "--to", "parquet", "-o"),
        ("export", "--to", "perfetto", "-o"),
        ("report", "-o"),
    ],
)
def test_every_output_is_written_through_a_link(
    memscope: Run, whole: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    verb, *options = words
    target, link = tmp_path / "kept" / "file", tmp_path / "link"
    target.parent.mkdir()
    memscope(verb, whole, *options, target)
    link.symlink_to(target)
    inode = target.stat().st_ino
    memscope(verb, whole, *options, link, "--force")
    assert link.is_symlink()
    assert target.stat().st_ino != inode, "by rename"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("is_linked", [True, False])
@pytest.mark.parametrize(
    "words",
    [
        ("check", "--write-baseline"),
        ("check", "--junit"),
        ("export", "--to", "arrow", "-o"),
        ("export", "--to", "perfetto", "-o"),
        ("report", "-o"),
    ],
)
def test_what_is_read_is_not_written_over(
    memscope: Run, whole: Path, tmp_path: Path, words: tuple[str, ...], is_linked: bool
) -> None:
    verb, *options = words
    data, link = whole.read_bytes(), tmp_path / "link"
    link.symlink_to(whole)
    path = link if is_linked else whole
    found = memscope(verb, whole, *options, path, "--force")
    assert (found.code, whole.read_bytes()) == (2, data)
    assert f"{path} is the input and cannot be the output too. Name another file." in found.err


@pytest.mark.parametrize(
    "words", [("run", "-o", "{}", "--force", "x.py"), ("decode", "x", "-o", "{}", "--force")]
)
def test_a_recording_is_not_written_through_a_link(
    memscope: Run, whole: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Its older parts would lie beside the link, and the file elsewhere."""
    link = tmp_path / "link.mscope"
    link.symlink_to(whole.name)
    data = whole.read_bytes()
    found = memscope(*(word.format(link) for word in words))
    assert found.code == 2
    assert f"{link} is a link" in found.err
    assert f"Name the file that it leads to: {whole}" in found.err
    assert (link.is_symlink(), whole.read_bytes()) == (True, data)
