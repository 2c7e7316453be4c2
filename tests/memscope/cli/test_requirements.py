"""What a verb says where a package is missing or broken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from memscope.cli.requirements import require
from memscope.errors import MemscopeError


def test_a_missing_package_names_the_extra() -> None:
    said = pytest.raises(MemscopeError, match=r"needs no_such, which is not installed.*\[runner\]")
    with said, require("runner", "no_such"):
        import no_such  # type: ignore[import-not-found]  # noqa: F401


@pytest.mark.parametrize(
    "line", ["raise ImportError('libcudart.so.13: cannot open')", "import nowhere_else"]
)
def test_a_broken_package_says_what_is_wrong(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_one.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    said = pytest.raises(MemscopeError, match="broken_one is installed but cannot be imported")
    with said, require("runner", "broken_one"):
        import broken_one  # type: ignore[import-not-found]  # noqa: F401
    assert "broken_one" not in sys.modules


def test_another_error_stays_what_it_is() -> None:
    with pytest.raises(ModuleNotFoundError), require("runner", "torch"):
        import no_such  # type: ignore[import-not-found]  # noqa: F401
