"""The pytest plugin: its options, its marker and its fixture.

Only the test's body (pytest's call phase) is measured. This file imports only pytest. The hooks
around tests are registered if the session has a test to measure; the rest is imported by the first
such test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memscope.errors import MemscopeError
from memscope.pytest_plugin.options import Settings, add_options, read_settings

if TYPE_CHECKING:
    from memscope.pytest_plugin.fixture import BodyMetrics

_MARKER, _FIXTURE = "memscope", "memscope_measurement"
_HELP = (
    f"{_MARKER}(*limits, repeat=1, warmup=0, fixtures=False, baseline=None, tolerance=None): "
    'record the test\'s body and fail the test if a limit "METRIC OP VALUE" is broken, for example '
    '"memory.peak_bytes <= 2 GiB".'
)
_settings: pytest.StashKey[Settings] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _HELP)
    try:
        settings = config.stash[_settings] = read_settings(config)
    except MemscopeError as error:
        raise pytest.UsageError(f"memscope: {error}") from None
    is_controller = config.getoption("dist", "no") != "no" and not _is_worker(config)
    if is_controller or settings.problems or settings.new_baseline or settings.output:
        _collect_results(config)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.stash[_settings].limits or any(map(_is_measured, session.items)):
        from memscope.pytest_plugin.hooks import MeasuredTests

        settings, plugins = session.config.stash[_settings], session.config.pluginmanager
        plugins.register(MeasuredTests(settings, plugins), "memscope-tests")
        if not _is_worker(session.config):
            _collect_results(session.config)


@pytest.fixture
def memscope_measurement(request: pytest.FixtureRequest) -> BodyMetrics:
    """Metrics of the test's body so far: memscope_measurement["METRIC"]."""
    from memscope.pytest_plugin.fixture import BodyMetrics
    from memscope.pytest_plugin.hooks import measurement_key

    measurement = request.node.stash.get(measurement_key, None)
    if measurement is None:
        pytest.fail(f"Make {_FIXTURE} an argument of the test or of one of its fixtures.")
    return BodyMetrics(measurement, is_strict=request.config.stash[_settings].strict)


def _is_measured(item: pytest.Item) -> bool:
    if item.get_closest_marker(_MARKER) is not None:
        return True
    return _FIXTURE in getattr(item, "fixturenames", ())


def _collect_results(config: pytest.Config) -> None:
    name = "memscope-results"
    if not config.pluginmanager.has_plugin(name):
        from memscope.pytest_plugin.session import SessionResults

        config.pluginmanager.register(SessionResults(config.stash[_settings]), name)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")
