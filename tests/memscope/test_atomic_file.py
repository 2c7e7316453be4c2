"""A file that appears once it is whole: what becomes of what lay there, and of links."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from memscope.atomic_file import atomic_write, check_free
from memscope.errors import MemscopeError


def write(path: Path, text: str, *, force: bool = True) -> None:
    with atomic_write(path, force=force) as unfinished:
        unfinished.write_text(text)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path, is_there: bool) -> None:
    target, link = tmp_path / "kept" / "page.html", tmp_path / "page.html"
    target.parent.mkdir()
    link.symlink_to("kept/page.html")
    if is_there:
        target.write_text("old")
    write(link, "new", force=is_there)
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert sorted(target.parent.iterdir()) == [target]
    assert sorted(tmp_path.iterdir()) == [target.parent, link]


def test_whoever_reads_the_old_one_keeps_it_through_a_link_as_well(tmp_path: Path) -> None:
    target, link = tmp_path / "page.html", tmp_path / "link.html"
    target.write_text("old")
    link.symlink_to(target)
    with link.open() as old:
        write(link, "new")
        assert (old.read(), target.read_text()) == ("old", "new")


def test_a_write_that_fails_leaves_link_and_file(tmp_path: Path) -> None:
    target, link = tmp_path / "page.html", tmp_path / "link.html"
    target.write_text("old")
    link.symlink_to(target)
    with pytest.raises(MemscopeError, match="No such file"), atomic_write(link, force=True):
        pass  # nothing was written, say because the disk is full
    assert (link.is_symlink(), target.read_text()) == (True, "old")
    assert sorted(tmp_path.iterdir()) == [link, target]


def test_the_new_one_is_for_the_readers_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    path.chmod(0o600)
    write(path, "new")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("loop", "loop is a link to itself"),
        ("no/page.html", "folder .*no does not exist"),
        ("away.html", "folder .*gone does not exist"),
        ("file/page.html", "file is not a folder"),
        ("null", "null is not a regular file"),
        ("folder", "folder is a folder"),
        ("n" * 256, "cannot be written .File name too long.*shorter"),
    ],
)
def test_places_that_take_no_file_are_named(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "away.html").symlink_to("gone/page.html")
    (tmp_path / "file").touch()
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "folder").symlink_to(tmp_path)
    with pytest.raises(MemscopeError, match=problem):
        check_free(tmp_path / name, force=True)
    with pytest.raises(MemscopeError, match=problem):
        write(tmp_path / name, "new")


def test_the_longest_name_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("\u00e9" * 127)  # of two bytes each
    write(path, "new")
    assert path.read_text() == "new"


def test_a_link_of_a_stranger_is_not_written_through(tmp_path: Path) -> None:
    """In a folder for all, such as /tmp, under the name that the unfinished file might have."""
    stranger = tmp_path / "theirs"
    stranger.write_text("theirs")
    link = tmp_path / f".page.html.{os.getpid()}"
    link.symlink_to(stranger)
    write(tmp_path / "page.html", "new")
    assert (stranger.read_text(), link.is_symlink()) == ("theirs", True)


def test_a_folder_that_nobody_may_look_into_is_said(tmp_path: Path) -> None:
    path = DeniedPath(tmp_path / "page.html")
    with pytest.raises(MemscopeError, match=r"Permission denied.*Choose a folder"):
        check_free(path, force=True)
    with pytest.raises(MemscopeError, match=r"Permission denied.*Choose a folder"):
        write(path, "new")


class DeniedPath(type(Path())):  # type: ignore[misc]
    """In a folder that its owner alone may look into."""

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """As the system answers, whoever asks (root may look everywhere)."""
        raise PermissionError(errno.EACCES, "Permission denied")
