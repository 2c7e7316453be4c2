"""Lines, charts and text: what is drawn, before Textual draws it."""

from __future__ import annotations

import numpy as np
import pytest
from rich.cells import cell_len

from memscope_dashboards.tui.block_characters import area, bar, columns
from memscope_dashboards.tui.palette import PLAIN, STYLES
from memscope_dashboards.tui.styled_line import fit, length, pad, paragraph, rule, spread
from memscope_dashboards.tui.widgets.layer_strip import GLYPHS, ruler, strip_row
from memscope_dashboards.tui.widgets.masthead import fact_text


@pytest.mark.parametrize("facts", [None, [], {"model": 3}, {"model": {"name": ["a"]}}, {}])
def test_a_fact_of_any_shape_gives_text_or_nothing(facts: object) -> None:
    assert fact_text(facts, "model", "name") == ""


@pytest.mark.parametrize("width", [1, 3, 8, 40])
@pytest.mark.parametrize("text", ["plain text of some length", "日本語のモデル名", ""])
def test_pad_fills_exactly_the_width(text: str, width: int) -> None:
    assert length(pad(((text, "text"), ("tail", "dim")), width)) == width


def test_fit_says_that_something_was_cut() -> None:
    assert fit((("abcdef", ""),), 4) == (("abc…", ""),)


def test_spread_keeps_the_right_end_and_cuts_the_left() -> None:
    line = spread((("a long name", ""),), (("42", ""),), 8)
    assert "".join(text for text, _ in line) == "a lo… 42"


def test_rule_and_paragraph_stay_within_the_width() -> None:
    lines = [rule("Title", (("end", "dim"),), 20), *paragraph("word " * 40, "dim", 20, indent=2)]
    assert {length(line) <= 20 for line in lines} == {True}


def test_columns_show_the_highest_value_of_each_stretch() -> None:
    t_ns = np.array([0, 10, 20, 60])
    tops = columns(t_ns, np.array([1.0, 5.0, 2.0, 7.0]), (0, 100), 5)
    assert tops.tolist() == [5.0, 2.0, 2.0, 7.0, 7.0]


def test_columns_are_blank_before_the_first_value() -> None:
    tops = columns(np.array([60]), np.array([3.0]), (0, 100), 4)
    assert np.isnan(tops[:2]).all()
    assert tops[2:].tolist() == [3.0, 3.0]


def test_area_fills_all_rows_at_the_ceiling_and_none_at_zero() -> None:
    assert area(np.array([0.0, 4.0, 8.0]), 8.0, 2) == ["  █", " ██"]


def test_area_shows_the_smallest_value_that_is_not_zero() -> None:
    assert area(np.array([1e-9, np.nan, 0.0]), 8.0, 1) == ["▁  "]


def test_bar_ends_where_its_parts_end_and_never_past_the_ceiling() -> None:
    parts = [(2.0, "█", "resident"), (1.0, "░", "idle"), (-1.0, "x", "other")]
    assert bar(parts, 6.0, 12) == [("████", "resident"), ("░░", "idle")]
    assert sum(len(text) for text, _ in bar([(99.0, "█", "resident")], 6.0, 12)) == 12


def test_each_layer_state_has_a_glyph_of_its_own() -> None:
    glyphs = [glyph for glyph, _ in GLYPHS.values()]
    assert len(set(glyphs)) == len(glyphs)


@pytest.mark.parametrize("cell", [1, 2, 3, 4])
def test_strip_takes_one_cell_a_layer_and_the_ruler_counts_them(cell: int) -> None:
    states = ["resident", "in flight", "evicted", "unused"] * 5
    assert length(strip_row(states, cell)) == cell * 20
    marks = ruler(20, 20, cell)[0][0]
    assert marks.index("30") == 10 * cell


def test_without_colour_no_role_has_one() -> None:
    assert all(style.color is None and style.bgcolor is None for style in PLAIN.values())
    assert PLAIN.keys() == STYLES.keys()
    assert PLAIN["alarm"].reverse


def test_wide_characters_do_not_overflow() -> None:
    assert cell_len(fit((("模型" * 30, ""),), 11)[0][0]) <= 11
