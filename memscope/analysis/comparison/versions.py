"""Which versions a recording was made with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memscope.facts import Fact

# The driver's and torch's own by the probes, then what the program says of itself, which counts.
_FACTS = (Fact.NVML_DRIVER, Fact.TORCH_VERSION, Fact.VERSIONS)
MOST_VERSIONS = 40


def find_versions(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Name → version; of a file that anybody may have written, at most ``MOST_VERSIONS``."""
    found: dict[str, Any] = {}
    for key in _FACTS:
        said = facts.get(key)
        found |= said if isinstance(said, dict) else {}
    return dict(list(found.items())[:MOST_VERSIONS])
