"""The ways to compute the q8 product, side by side."""

from __future__ import annotations

from benchmarks.q8_products import measure_products
from memscope_runners.checkpoint.fetch import open_model


def test_every_way_is_right_and_repeats_its_bits() -> None:
    rows = {row.name: row for row in measure_products(open_model("synthetic:tiny"), rounds=1)}
    assert len(rows) == 5
    assert all(row.is_stable and row.ms_per_token > 0 for row in rows.values())
    assert all(row.error_ratio < 1e-2 for row in rows.values())
    assert rows["dequantize to float32"].error_ratio < 1e-5
