"""Text of strangers on a terminal."""

from __future__ import annotations

import pytest

from memscope.text import clean

HOSTILE = [
    "[red]x[/]",
    "\x1b[2J\x1b]0;owned\x07",
    "a\nb\tc",
    "\u202egnp.exe",
    "x" * 1_000_000,
    "\x00",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_clean_leaves_one_short_line_without_controls(text: str) -> None:
    cleaned = clean(text, 120)
    assert len(cleaned) <= 120
    assert not set(cleaned) & {"\x1b", "\x07", "\n", "\t", "\x00", "\u202e"}


def test_clean_keeps_markup_as_the_text_it_is() -> None:
    assert clean("[red]x[/]") == "[red]x[/]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a b c"),
        ("\x1b[31mred", "\ufffd[31mred"),
        ("\u202eright", "\ufffdright"),
        ("\ud800", "\ufffd"),
        ("naïve 模型 ≤ 2", "naïve 模型 ≤ 2"),
    ],
)
def test_clean(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_clean_shortens() -> None:
    assert clean("abcdef", 4) == "abc…"
