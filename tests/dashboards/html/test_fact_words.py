"""A fact in words: numbers with their unit, but for those that nothing comes to."""

from __future__ import annotations

import pytest

from memscope_dashboards.html.facts import format_fact


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("weights_bytes", 3 << 30, "3.00 GiB"),
        ("link_ns", 2_000_000, "2.00 ms"),
        ("load_s", 90, "1 min 30 s"),
        ("pinned_bytes_per_s", 3 << 30, "3.00 GiB/s"),
        ("weights_bytes", 10**400, f"{10**400:,}"),
        ("link_ns", -(10**400), f"{-(10**400):,}"),
        ("load_s", float("inf"), "inf"),
        ("load_s", float("nan"), "nan"),
    ],
)
def test_numbers_have_their_unit_where_they_can_be_measures(
    key: str, value: float, words: str
) -> None:
    assert format_fact(key, value) == words
