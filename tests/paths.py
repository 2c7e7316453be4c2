"""Where the project and the data of its tests are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
