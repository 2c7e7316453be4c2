"""Memory health as a test that fails: the options, the marker and the fixture.

What counts is the call phase: the test's body. Only pytest is imported here; hooks around tests
are there once a session has a test to measure, and the rest comes with the first such test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memscope.errors import MemscopeError
from memscope.pytest_plugin.options import Settings, add_options, read_settings

if TYPE_CHECKING:
    from memscope.pytest_plugin.body import MeasuredBody

_MARKER, _FIXTURE = "memscope", "memscope_measurement"
_HELP = (
    f"{_MARKER}(*limits, repeat=1, warmup=0, fixtures=False, baseline=None, tolerance=None): "
    'record the test\'s body and fail it where a limit "METRIC OP VALUE" is broken, such as '
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
def memscope_measurement(request: pytest.FixtureRequest) -> MeasuredBody:
    """Metrics of the test's body, as measured until now: memscope_measurement["METRIC"]."""
    from memscope.pytest_plugin.body import MeasuredBody
    from memscope.pytest_plugin.hooks import measurement_key

    measurement = request.node.stash.get(measurement_key, None)
    if measurement is None:
        pytest.fail(f"{_FIXTURE} has to be an argument of the test or of its fixtures.")
    return MeasuredBody(measurement, is_strict=request.config.stash[_settings].strict)


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
