"""Who may import whom, in one direction."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import memscope
from tests.paths import ROOT

HEAVY = ("torch", "numpy", "pyarrow", "textual", "plotly")


def loaded_after(code: str) -> set[str]:
    """Which heavy packages a fresh interpreter holds after running ``code``."""
    show = f"import sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    command = [sys.executable, "-c", f"{code}\n{show}"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "module",
    ["memscope", "memscope.cli", "memscope.pytest_plugin.plugin", "memscope.events"],
)
def test_import_loads_nothing_heavy(module: str) -> None:
    assert loaded_after(f"import {module}") == set()


def test_recorder_and_reader_load_no_torch() -> None:
    assert loaded_after("import memscope; memscope.Recorder; memscope.Recording") == {
        "numpy",
        "pyarrow",
    }


def test_completion_finds_the_names_and_loads_nothing_heavy() -> None:
    names = "set(memscope.__all__) == {name for name in dir(memscope) if name[:2] != '__'}"
    code = f"import memscope; assert {names}; assert 'record' in dir(memscope)"
    assert loaded_after(code) == set()
    assert all(hasattr(memscope, name) for name in memscope.__all__)


def test_heavy_imports_are_seen() -> None:
    assert loaded_after("import numpy") == {"numpy"}


def test_import_contracts_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run(
        [lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stdout + run.stderr
