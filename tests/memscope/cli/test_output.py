"""Where a verb's files go."""

from __future__ import annotations

from pathlib import Path

import pytest

from memscope.cli.output import new_folder
from memscope.errors import MemscopeError


def test_each_folder_takes_the_next_number(tmp_path: Path) -> None:
    (tmp_path / "007").mkdir()
    (tmp_path / "²").mkdir()  # a digit that is no number
    assert [new_folder(tmp_path).name for _ in range(2)] == ["008", "009"]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MemscopeError, match="MEMSCOPE_DIR"):
        new_folder(tmp_path / "file" / "memscope-demo")
