"""For all tests: what they need and skip without, their order, and who has the GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

from tests.gpu_lock import hold_gpu, lock_folder

pytest_plugins = ["pytester"]

# No test is timed: the first text that is drawn takes seconds on a busy machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if _gpu_marks(item) and not _has_gpu():
        pytest.skip("no CUDA device here")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Hold the GPU from the first fixture to the last: alone if one mark says ``alone=True``."""
    marks = _gpu_marks(item)
    with contextlib.ExitStack() as stack:
        if marks and _has_gpu():
            alone = any(mark.kwargs.get("alone") for mark in marks)
            stack.enter_context(hold_gpu(lock_folder(), alone=alone))
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first: at the end one worker would be alone with them."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _gpu_marks(item: pytest.Item) -> list[pytest.Mark]:
    return list(item.iter_markers("gpu"))


@cache
def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
