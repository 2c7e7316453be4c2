"""Hooks: a marked test's body is recorded, and its limits are judged when it has passed.

What counts is the call phase: fixtures are neither recorded nor judged. Only pytest is imported
here; the rest comes with the first marked test.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from memscope.errors import MemscopeError

if TYPE_CHECKING:
    from memscope.pytest_plugin.measurement import Measurement

MARKER = "memscope"
_HELP = (
    f'{MARKER}(*limits): record the test\'s body and fail it where a limit "FIGURE OP VALUE" is '
    'broken, such as "memory.peak_bytes <= 2 GiB".'
)
_measurement: pytest.StashKey[Measurement] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _HELP)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker(MARKER) is not None:
        item.stash[_measurement] = _prepare(item)


@pytest.hookimpl(wrapper=True, trylast=True)  # innermost: what other plugins do is not measured
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    measurement = item.stash.get(_measurement, None)
    if measurement is None:
        return (yield)
    measurement.start()
    try:
        result = yield
    except BaseException as error:
        measurement.stop()
        _leave(item, measurement, error)
        raise
    measurement.stop()
    _apply(item, measurement)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    measurement = item.stash.get(_measurement, None)
    if measurement is not None and measurement.skip_reason and call.when == "call":
        _place_skip(item, report, measurement.skip_reason)
    return report


def _place_skip(item: pytest.Item, report: pytest.TestReport, reason: str) -> None:
    """Give the test's place, not that of the skip in this file. A TestCase may have failed."""
    if report.skipped:
        path, line, _ = item.reportinfo()
        report.longrepr = (str(path), (line or 0) + 1, f"Skipped: {reason}")


def _prepare(item: pytest.Item) -> Measurement:
    """The limits of all markers, the outermost first. A bad one fails this test alone."""
    from memscope.pytest_plugin.measurement import Measurement
    from memscope.pytest_plugin.report import describe_usage

    try:
        return Measurement(item.nodeid, reversed(list(item.iter_markers(MARKER))))
    except MemscopeError as error:
        pytest.fail(describe_usage(item.nodeid, error), pytrace=False)


def _leave(item: pytest.Item, measurement: Measurement, error: BaseException) -> None:
    """The body did not pass: its own outcome stands, and its recording helps to see why."""
    from memscope.pytest_plugin.report import describe_kept

    if isinstance(error, pytest.skip.Exception) or measurement.path is None:
        measurement.discard()
    else:
        item.add_report_section("call", MARKER, describe_kept(measurement.path))


def _apply(item: pytest.Item, measurement: Measurement) -> None:
    """Fail or skip a test whose body has passed, by what was measured."""
    from memscope.pytest_plugin import report

    judgement = measurement.judge()
    if judgement.broken and measurement.path is not None:
        pytest.fail(report.describe_broken(judgement.broken, measurement.path), pytrace=False)
    for line in report.describe_near(judgement.near):
        item.warn(pytest.PytestWarning(line))
    measurement.discard()
    measurement.skip_reason = report.describe_unjudged(judgement)
    if measurement.skip_reason:
        pytest.skip(measurement.skip_reason)
