"""C that is compiled into the cache: once, whole, and where nobody else can put anything."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from memscope.errors import MemscopeError
from memscope.native import build, find_compiler, private_folder

FLAGS = ("-O1", "-shared", "-fPIC")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MEMSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    try:
        find_compiler()
    except MemscopeError as error:
        pytest.skip(error.problem)
    path = tmp_path / "seven.c"
    path.write_text("int seven(void) { return 7; }\n")
    return path


def test_it_is_compiled_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = build(source, FLAGS)
    assert ctypes.CDLL(str(built)).seven() == 7
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    assert build(source, FLAGS) == built


def test_another_source_or_processor_is_another_library(source: Path) -> None:
    built = build(source, FLAGS)
    assert build(source, FLAGS, tuned_for=b"avx512") != built
    source.write_text("int seven(void) { return 8; }\n")
    assert build(source, FLAGS) != built


def test_only_the_user_may_write_where_it_lies(cache: Path) -> None:
    before = os.umask(0)
    try:
        folder = private_folder()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_may_write_is_refused(source: Path, cache: Path, mode: int) -> None:
    planted = build(source, FLAGS)
    planted.parent.chmod(mode)
    with pytest.raises(MemscopeError, match="can be written by other users"):
        build(source, FLAGS)


def test_a_link_to_another_place_is_refused(cache: Path, tmp_path: Path) -> None:
    cache.mkdir()
    (cache / f"native-{os.geteuid()}").symlink_to(tmp_path)
    with pytest.raises(MemscopeError):
        private_folder()


def test_what_cannot_be_compiled_leaves_nothing(source: Path, cache: Path) -> None:
    source.write_text("int seven(void) { return }\n")
    with pytest.raises(MemscopeError, match=r"cannot compile seven\.c"):
        build(source, FLAGS)
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_quotation_without_an_end_in_cc_is_passed_over(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "'gcc")
    assert build(source, FLAGS).exists()
