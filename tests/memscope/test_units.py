"""Sizes as people write them."""

from __future__ import annotations

import pytest

from memscope.errors import MemscopeError
from memscope.units import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"), [("96MiB", 96 << 20), ("8 GB", 8 * 10**9), ("1024", 1024), ("1.5kib", 1536)]
)
def test_a_size_is_read_in_its_own_unit(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "-1", "96XiB", "nan", "inf", "5 0MiB", "1e400", "1e308TiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(MemscopeError):
        parse_bytes(text)
