"""For all tests: what they need and skip without."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

# No test is timed: the first text that is drawn takes seconds on a busy machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None and not _has_gpu():
        pytest.skip("no CUDA device here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first: at the end one worker would be alone with them."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def _has_gpu() -> bool:
    torch = pytest.importorskip("torch")
    return bool(torch.cuda.is_available())
