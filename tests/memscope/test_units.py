"""Sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memscope.errors import MemscopeError
from memscope.units import format_value, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [("96MiB", 96 << 20), ("8 GB", 8 * 10**9), ("1024", 1024), ("1.5kib", 1536), ("2GIB", 2 << 30)],
)
def test_a_size_is_read_in_its_own_unit(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [("1G", 1 << 30), ("60M", 60 << 20), ("1.5 k", 1536), ("2t", 2 << 40), ("512m", 512 << 20)],
)
def test_a_letter_alone_is_1024_based(text: str, size: int) -> None:
    assert parse_bytes(text) == size


def test_the_refusal_shows_how_sizes_are_written() -> None:
    with pytest.raises(MemscopeError, match=r"60M or 1G \(1024-based\)"):
        parse_bytes("96XiB")


@given(st.integers(0, 1 << 30), st.sampled_from("KMGT"), st.booleans())
def test_a_letter_means_the_same_as_its_binary_unit(
    count: int, letter: str, is_lower: bool
) -> None:
    written = letter.lower() if is_lower else letter
    assert parse_bytes(f"{count}{written}") == parse_bytes(f"{count} {letter}iB")


@pytest.mark.parametrize(
    "text",
    ["", "-1", "96XiB", "nan", "inf", "5 0MiB", "1e400", "1e308TiB", "2Gb", "2Mib", "1P", "G"],
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(MemscopeError):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1, "errors", "1 error"),
        (1, "entries", "1 entry"),
        (0, "errors", "0 errors"),
        (2, "calls", "2 calls"),
        (1.5, "layers", "1.50 layers"),
        (1, "", "1"),
        (1, "bytes", "1 B"),
        (0.191, "points", "19.1 points"),
    ],
)
def test_one_of_what_is_counted_is_singular(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text
