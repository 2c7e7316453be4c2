"""The benchmark of allocators runs on any machine."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.allocators import measure_geometries
from memscope_runners.checkpoint.fetch import open_model
from memscope_runners.memory.device import HostDevice
from tests.paths import ROOT

pytestmark = pytest.mark.slow

QUICK = ["--model", "synthetic:tiny", "--device", "host", "--tokens", "4", "--rounds", "1"]


def run_benchmark(name: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, ROOT / "benchmarks" / f"{name}.py", *arguments, "--json"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def test_allocators_have_a_row_for_each_unit():
    result = run_benchmark("allocators", *QUICK)
    calls = {
        (row["allocator"], row["unit"]): row["driver_calls_per_step"]
        for row in result["rows"]
        if not row["prefetch"]
    }
    assert calls[("naive", "slab")] == 10
    assert calls[("naive", "entry")] == 70
    assert {calls[(name, unit)] for name in ("pool", "static") for unit in ("slab", "entry")} == {0}
    assert all(row["is_outcome_same"] for row in result["rows"])


def test_pool_keeps_all_three_geometries():
    tiny, device = open_model("synthetic:tiny"), HostDevice()
    rows = {(row.allocator, row.unit): row for row in measure_geometries(tiny, device)}
    assert rows[("pool", "slab")].hit_rate == 1.0
    size = tiny.layer_layout.bytes
    assert rows[("pool", "slab")].idle_bytes == 6 * sum(size * share // 4 for share in (2, 3, 4))
    assert rows[("naive", "slab")].driver_calls_per_step == 12
    assert device.allocated_bytes == 0
